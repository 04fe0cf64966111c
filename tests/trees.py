"""Small treebanks in CoNLL-U, and entities in columns, whose sentences are all different."""

from itertools import product

NOUNS = {"dog": "Sing", "cats": "Plur", "film": "Sing", "dogs": "Plur"}
VERBS = {"saw": "Past", "sees": "Pres", "loved": "Past"}
HEADER = "# sent_id = {}\n# text = {}\n"


def treebank(count: int) -> str:
    """Return so many different sentences of five or six words, at most 144."""
    pairs = list(product(NOUNS, VERBS, NOUNS, ("", "good", "dull")))
    return "".join(_sentence(number, *pairs[number * 7 % len(pairs)]) for number in range(count))


def _sentence(number: int, subject: str, verb: str, target: str, adjective: str) -> str:
    last = 6 if adjective else 5
    rows = [
        ("the", "DET", "_", 2, "det"),
        (subject, "NOUN", f"Number={NOUNS[subject]}", 3, "nsubj"),
        (verb, "VERB", f"Tense={VERBS[verb]}|VerbForm=Fin", 0, "root"),
        ("a", "DET", "_", last, "det"),
        *([(adjective, "ADJ", "Degree=Pos", last, "amod")] if adjective else []),
        (target, "NOUN", f"Number={NOUNS[target]}", 3, "obj"),
    ]
    lines = [
        f"{at}\t{word}\t{word}\t{tag}\t_\t{features}\t{head}\t{relation}\t_\t_\n"
        for at, (word, tag, features, head, relation) in enumerate(rows, start=1)
    ]
    return HEADER.format(number, " ".join(row[0] for row in rows)) + "".join(lines) + "\n"


def entities(count: int) -> str:
    """Return so many different sentences with an entity or two each, two columns."""
    names = ("London LOC", "New York LOC", "Ann PER", "Tom Ford PER")
    sentences = []
    for number in range(count):
        *words, kind = names[number % len(names)].split()
        tags = [f"{'I' if at else 'B'}-{kind}" for at in range(len(words))]
        named = "".join(f"{word} {tag}\n" for word, tag in zip(words, tags, strict=True))
        sentences.append(f"the O\ndog O\nsaw O\n{named}in O\n{number} O\n\n")
    return "".join(sentences)
