"""The inputs of all commands: a tiny encoder, texts with labels, bare text, and a few finished runs."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from random import Random

from tests.torture.client import Server
from tests.torture.kinds import BY_NAME, Kind, Words
from tests.torture.server import Command

NUM_TRAIN, NUM_VALID, NUM_DOCUMENTS = 24, 12, 40
RUNS = {"dense": "mixed", "thin": "heads-and-neurons", "sparse": "movement"}
"""The finished runs that other commands read, and the kind that makes each."""
LIMIT = 120.0


def make_world(world: Path, server: Server, kinds: Sequence[Kind]) -> None:
    """Write the inputs of these kinds into a new folder."""
    world.mkdir(parents=True)
    _save_encoder(world / "encoder")
    _write_texts(world)
    read = " ".join(word for kind in kinds for words in (kind.words, *kind.readers) for word in words)
    for name, kind in RUNS.items():
        if f"runs/{name}" in read:
            _make(server, world, _renamed(kind, name))


def _renamed(kind: str, name: str) -> Words:
    """The command of a kind, writing to runs/NAME."""
    words = BY_NAME[kind].words
    at = words.index("--out") + 1
    return (*words[:at], f"runs/{name}", *words[at + 1 :])


def _make(server: Server, world: Path, words: Words) -> None:
    command = Command(
        words=tuple(word.format(world=world) for word in words),
        folder=str(world),
        cache=str(world / "cache"),
        log=str(world / "log"),
        limit=LIMIT,
    )
    ended = server.run(command)
    if ended.code != 0:
        said = (world / "log.err").read_text(encoding="utf-8")
        raise RuntimeError(f"bermo {' '.join(command.words)} ended with {ended.code}:\n{said}")


def _save_encoder(folder: Path) -> None:
    # Imported here: the driver itself needs no torch but for this.
    import torch

    from tests.tiny import save_backbone

    torch.manual_seed(0)
    save_backbone("bert", folder)


def _write_texts(world: Path) -> None:
    random = Random(0)
    nouns, verbs = ("cat", "cats", "dog", "dogs", "film", "films"), ("sees", "saw")
    rows = [
        (f"{article} {word} {noun} {verb} the {other} .", word)
        for article, word, noun, verb, other in product(("the", "a"), ("good", "bad"), nouns, verbs, nouns)
    ]
    random.shuffle(rows)
    for name, part in (("train", rows[:NUM_TRAIN]), ("dev", rows[NUM_TRAIN : NUM_TRAIN + NUM_VALID])):
        lines = [f'"{text}",{label}' for text, label in part]
        (world / f"{name}.csv").write_text("\n".join(["text,label", *lines, ""]), encoding="utf-8")
    texts = [text for text, _ in rows]
    (world / "texts.txt").write_text("\n".join([*texts[:8], ""]), encoding="utf-8")
    (world / "many.txt").write_text("\n".join([*texts[:120], ""]), encoding="utf-8")
    pairs = [
        f"{one},{other},{i % 3}" for i, (one, other) in enumerate(zip(texts[:24], texts[24:48], strict=True))
    ]
    (world / "pairs.csv").write_text("\n".join(["text1,text2,score", *pairs, ""]), encoding="utf-8")
    ranked = [f"{texts[i // 4]},{text},{int(i % 4 == 0)}" for i, text in enumerate(texts[:24])]
    (world / "ranked.csv").write_text("\n".join(["query,passage,label", *ranked, ""]), encoding="utf-8")
    documents = [" ".join(random.sample(texts, 4)) for _ in range(NUM_DOCUMENTS)]
    (world / "text.txt").write_text("\n\n".join([*documents, ""]), encoding="utf-8")
