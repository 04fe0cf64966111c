"""The files that the documents' commands name, as a user would have them, but tiny."""

import json
from pathlib import Path

from tests.trees import entities, treebank

GOOD = ["a fine film", "great fun", "I loved it, really"]
BAD = ["a dull film", "no fun", "awful"]
STORY = "the dog sees a cat .\nthe cat saw the film .\nit was a good film .\n\n"


def write_user_files(folder: Path) -> None:
    """Write every file and folder that a command of a document reads."""
    rows = [f'"{text}",{label}' for label, texts in (("good", GOOD), ("bad", BAD)) for text in texts]
    for name in ("my.csv", "dev.csv", "test.csv"):
        (folder / name).write_text("text,label\n" + "\n".join(rows * 4) + "\n")
    rows = [f'"{text}",{share},{1 - share}' for share, texts in ((0.75, GOOD), (0.25, BAD)) for text in texts]
    (folder / "soft.csv").write_text("text,good,bad\n" + "\n".join(rows) + "\n")
    topics = [
        ("the club won", "sport"),
        ("a new law", "law"),
        ("the club's trial", "sport|law"),
        ("rain", ""),
    ]
    rows = [f"{text} {k},{labels}" for k in range(30) for text, labels in topics]
    (folder / "topics.csv").write_text("text,label\n" + "\n".join(rows) + "\n")
    people = [(f"Today {name} saw film {k}.", name) for k in range(12) for name in ("Anna", "Peter")]
    spans = [{"start": 6, "end": 6 + len(name), "label": "PER"} for _, name in people]
    named = [
        json.dumps({"text": text, "spans": [span]}) for (text, _), span in zip(people, spans, strict=True)
    ]
    (folder / "names.jsonl").write_text("\n".join(named) + "\n")
    asked = [f"Who saw film {k}?,{text},{name}" for k, (text, name) in enumerate(people)]
    (folder / "questions.csv").write_text("question,context,answer\n" + "\n".join(asked) + "\n")
    (folder / "new.csv").write_text("number,text\n1,a fine film\n2,a dull film\n")
    (folder / "texts.txt").write_text("a fine film\na dull, lifeless film\n")
    for name in ("corpus.txt", "more.txt"):
        (folder / name).write_text(STORY * 30)
    (folder / "words.txt").write_text("dog\ncat\n")
    (folder / "mine.py").write_text("def cost(truth, answers):\n    return -float(truth != answers)\n")
    (folder / "my.conllu").write_text(treebank(60))
    (folder / "names.txt").write_text(entities(40))
    sst2 = folder / "path" / "to" / "sst2"
    sst2.mkdir(parents=True)
    lines = [f"{text}\t{int(text in GOOD)}" for text in (GOOD + BAD) * 4]
    for name in ("train.tsv", "dev.tsv"):
        (sst2 / name).write_text("sentence\tlabel\n" + "\n".join(lines) + "\n")
    _write_senteval(folder / "path" / "to" / "senteval")
    _write_senses(folder / "path" / "to" / "senses")


def _write_senteval(folder: Path) -> None:
    folder.mkdir()
    rows = [
        f"{part}\t{'PAST' if k % 2 else 'PRES'}\tthe dog {'saw' if k % 2 else 'sees'} {k} cats"
        for part, count in (("tr", 40), ("va", 10), ("te", 10))
        for k in range(count)
    ]
    (folder / "past_present.txt").write_text("\n".join(rows) + "\n")


def _write_senses(folder: Path) -> None:
    folder.mkdir()
    uses = [
        ("the cat sees a film", "1:01:00::"),
        ("bad cat", "1:02:00::"),
        ("a cat saw the dogs .", "1:02:00::"),
    ]
    lines = ["#doc\tsent\tterm_tokens\tlemma\tpos\tkey\tsynset"]
    for number, (text, key) in enumerate(uses):
        lines += [f"d\t{number}\t{w}\t{w}\tNN\t{key if w == 'cat' else '-'}\t-" for w in text.split()]
    (folder / "semcor3.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    words = '<wf lemma="x" pos="X">good</wf><instance id="s0" lemma="cat" pos="NOUN">cat</instance>'
    (folder / "senseval2.data.xml").write_text(
        f'<corpus><text><sentence id="0">{words}</sentence></text></corpus>'
    )
    (folder / "senseval2.gold.key.txt").write_text("s0 cat%1:01:00::\n")
