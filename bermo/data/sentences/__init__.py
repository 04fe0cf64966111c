"""Generated English sentences with exact labels: `generate`, `split`, and the `TASKS` they serve.

grammar.py draws trees from the words of lexicon.py; tasks.py draws them to a label
"""

from bermo.data.sentences.tasks import TASKS, Sentence, SentenceTask, generate, split, with_trees

__all__ = ["TASKS", "Sentence", "SentenceTask", "generate", "split", "with_trees"]
