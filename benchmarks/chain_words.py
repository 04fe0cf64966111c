"""Which words the students of the chain keep: as many as leave their int8 files a sixteenth of the teacher's.

    python benchmarks/chain_words.py STUDENT --teacher TEACHER --data SST2 \\
        --texts wikipedia/part0.txt.xz --out words.txt

STUDENT is a model of the largest shape, trained or not. The words of the training texts stay first, the
frequent ones before the rare ones, then the frequent words of --texts. chain_gpu.sh (DATA/words.txt) cuts the
others from all students before they are taught, so that they learn what the pieces of a lost word mean.
"""

import argparse
import lzma
from collections import Counter
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from bermo.encoders.sites import encoder_of
from bermo.files import write_text
from bermo.runs.trained import open_trained
from bermo.ship.shrink.vocabulary import plan_cut

SMALLER = 16
"""How many times smaller than the dense model a student's files have to be."""
REST_BYTES = 700_000
"""What an int8 model has beside its layers and its table of words: positions, scales, head, the graph."""
MORE_LINES = 60_000


def rank_words(data: Path, more: Path | None = None) -> tuple[str, ...]:
    """Order the words that may stay, the first to be kept first."""
    lines = (data / "train.tsv").read_text(encoding="utf-8").splitlines()
    texts = [line.rsplit("\t", 1)[0] for line in lines[1:]]
    words = [word for word, _ in Counter(word for text in texts for word in text.split()).most_common()]
    if more is not None:
        with lzma.open(more, "rt", encoding="utf-8") as file:
            counts = Counter(word for line in islice(file, MORE_LINES) for word in line.lower().split())
        words += [word for word, _ in counts.most_common() if word.isalpha()]
    return tuple(dict.fromkeys(words))


def write_words(words: Sequence[str], source: Path, most_bytes: float, path: Path) -> Path:
    """Write as many of the words as a student of this size may keep, in their order."""
    opened = open_trained(source)
    model, tokenizer = opened.load_bermo_model(), opened.load_tokenizer()
    config = encoder_of(model).config
    layers = sum(value.numel() for name, value in model.named_parameters() if ".layer." in name)
    rows = (most_bytes - layers - REST_BYTES) / (config.hidden_size + 4)
    pieces = tokenizer(list(words), add_special_tokens=False)["input_ids"]
    kept, count = set(plan_cut(tokenizer, config, ["a"]).ids), 0
    while count < len(words) and len(kept | set(pieces[count])) <= rows:
        kept |= set(pieces[count])
        count += 1
    write_text(path, "\n".join(words[:count]) + "\n")
    return path


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("student", type=Path)
    for name in ("teacher", "data", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--texts", type=Path, help="texts (.xz) whose frequent words are kept too")
    options = parser.parse_args()
    words = rank_words(options.data, options.texts)
    most_bytes = open_trained(options.teacher).num_bytes / SMALLER
    path = write_words(words, options.student, most_bytes, options.out)
    print(f"{len(path.read_text(encoding='utf-8').splitlines()):,} words are in {path}")


if __name__ == "__main__":
    main()
