"""Which ways of training go with a teacher, with texts without labels and with answers from a file, as the
check that `bermo train` makes before any work tells.
"""

from bermo.cli import build_parser
from bermo.errors import BermoError
from bermo.methods.checks import check_methods
from bermo.verbs import VERBS
from bermo.verbs.options import read_options
from scripts.tables.numbers import table

WAYS = (
    "",
    "--student-layers 2,4",
    "--student-layers 2,4 --student-neurons 0.5",
    "--student-layers 2,4 --student-heads 0.5",
    "--keep-layers 3 --keep-by last",
    "--distill-as distilbert",
    "--distill-as pkd",
    "--distill-as tinybert",
    "--distill-as minilm",
    "--quantize int8",
    "--quantize ternary",
    "--quantize binary",
    "--theseus 2",
    "--tie-layers 2",
    "--low-rank 0.5",
    "--embedding-rank 0.5",
    "--keep-tokens 0.4 --pooling first --mix none --contrast 0",
    "--mix-path opens",
    "--mix-path closes --mix raw",
    "--mixout 0.7",
    "--rdrop 1",
    "--adversarial smart",
    "--adversarial freelb",
    "--lora 8",
    "--prune magnitude --density 0.1",
    "--prune magnitude --density 0.5 --scope global --rewind 2",
    "--prune movement --density 0.1",
    "--prune soft-movement --density 0.1",
    "--prune l0 --density 0.1",
    "--prune proximal --density 0.3",
    "--prune heads-and-neurons --density 0.5",
    "--prune layers --density 0.5",
)
"""Words of a command; none are fine-tuning as usual."""
TEACHERS = {
    "a model": "--teacher runs/dense",
    "and texts without labels": "--teacher runs/dense --unlabelled texts.txt",
    "answers from a file": "--teacher-answers soft.csv --unlabelled texts.txt",
}


def taught() -> str:
    """What each way of training may be taught by; ways of which the same holds share a row."""
    ways: dict[tuple[str, ...], list[str]] = {}
    for way in WAYS:
        answers = tuple("no" if refusal(way, words) else "yes" for words in TEACHERS.values())
        ways.setdefault(answers, []).append(f"`{way}`" if way else "fine-tuning as usual")
    rows = [[", ".join(names), *answers] for answers, names in ways.items()]
    return table(["a training with", *TEACHERS], rows)


def refusal(way: str, teacher: str) -> str:
    """Return why `bermo train` refuses a way with a teacher; nothing if it does not."""
    words = f"train --train my.csv --valid dev.csv {way} {teacher}".split()
    try:
        options = read_options(VERBS["train"].options, build_parser()[0].parse_args(words))
        check_methods(options.spec)
    except BermoError as error:
        return str(error)
    return ""
