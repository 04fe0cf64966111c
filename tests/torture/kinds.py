"""The kinds of command that are tortured, at the tiniest sizes, and what reads the files that they leave.

In a command {world} is the folder of inputs (world.py), and `out` is what it writes, in a folder of its own.
"""

from dataclasses import dataclass
from importlib.util import find_spec

Words = tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Kind:
    """A command, and the commands that read what it left."""

    name: str
    words: Words
    readers: tuple[Words, ...] = ()
    measured: tuple[str, ...] = ()
    """Files that hold times and memory, and differ from run to run."""
    is_slow: bool = False
    """Whether one run takes many seconds, so that few trials are made."""
    needs: tuple[str, ...] = ()
    """Packages of extras."""

    @property
    def is_installed(self) -> bool:
        """Whether all that it needs is there."""
        return all(find_spec(name) for name in self.needs)


def _words(text: str) -> Words:
    return tuple(text.split())


DATA = "--model {world}/encoder --train {world}/train.csv --valid {world}/dev.csv --max-length 48"
CHOSEN = (
    f"train {DATA} --epochs 3 --batch-size 12 --lr 5e-3 --checkpoint-minutes 0.0003 --device cpu --out out"
)
PLAIN = "--head random --pooling first"
"""Without the probes that choose the head and the pooling for few rows: they are most of a tiny run."""
TRAIN = f"{CHOSEN} {PLAIN}"
PRETRAIN = (
    "pretrain --text {world}/text.txt --vocabulary 300 --held-out 0.2 --length 16 --positions 32"
    " --config tiny --layers 1 --width 16 --steps 12 --batch-size 4 --looks 2"
    " --checkpoint-minutes 0.0003 --out out"
)
FINETUNE = _words(
    f"train {DATA} {PLAIN} --epochs 1 --max-unknown 1 --out new".replace("{world}/encoder", "out/model")
)
CARD = "out/model/README.md"
"""A card that tells how long the pretraining took."""
BENCH = "--batch 1 --lengths 8 --rounds 1 --threads 1"
PREDICT = _words("predict out {world}/texts.txt --out answers.jsonl")
EVALUATE = _words("evaluate out {world}/dev.csv --out scores.json")
REPORT = _words("report out --out page.html")
BF16 = _words("export out --to torch-bf16 --out half")
SPARSE = _words("export out --to sparse --values fp32 --out packed")
TRAINED = (PREDICT, EVALUATE, REPORT)
SHIPPED = (PREDICT, EVALUATE)


ARMS = "subject-number-plain,subject-number-mix"
RECIPE = (
    f"--arms {ARMS} --seeds 1 model.backbone={{world}}/encoder data.task=own data.train={{world}}/train.csv"
    " data.valid={world}/dev.csv data.max_length=48 train.epochs=3 train.batch_size=12 train.lr=5e-3"
    " train.checkpoint_minutes=0.0003 train.device=cpu"
)
ONNX = ("onnx", "onnxruntime", "onnxscript")
PAIRS = TRAIN.replace("/train.csv", "/pairs.csv").replace("/dev.csv", "/pairs.csv").replace(PLAIN, "")
ENCODE = _words("encode out {world}/texts.txt --out vectors.npy")
SIMILAR = _words("similar out {world}/texts.txt --query good")
SENTENCE = (ENCODE, SIMILAR, _words("evaluate out {world}/pairs.csv --out scores.json"), REPORT)
ATLAS_LOGS = tuple(f"out/{name}/seed-1/jobs/1-train.log" for name in ("dense", "magnitude"))


def _training(name: str, more: str, export: Words = BF16, command: str = TRAIN) -> Kind:
    words = _words(f"{command} {more}")
    return Kind(name=name, words=words, readers=(words, *TRAINED, export))


def _export(form: str, run: str, more: str = "", needs: tuple[str, ...] = ()) -> Kind:
    words = _words(f"export {{world}}/{run} --to {form} --out out {more}")
    return Kind(name=form, words=words, readers=SHIPPED, is_slow=bool(needs), needs=needs)


def _again(name: str, text: str, *readers: Words, measured: tuple[str, ...] = ()) -> Kind:
    """A command that goes on in its folder, and so reads what it left there."""
    return Kind(name=name, words=_words(text), readers=(_words(text), *readers), measured=measured)


def _compress(name: str, text: str, reader: Words, needs: tuple[str, ...] = ()) -> Kind:
    names = ("README.md", "bench.json", "figures.json", "front.svg", "work/dense.json")
    words = _words(f"compress {text} --size 1MB {BENCH} --out out")
    return Kind(
        name=name,
        words=words,
        readers=(reader,),
        measured=tuple(f"out/{name}" for name in names),
        is_slow=True,
        needs=needs,
    )


KINDS: tuple[Kind, ...] = (
    _training("chosen", "--mix none", command=CHOSEN),
    _training("dense", "--mix none"),
    _training("mixed", "--mix across"),
    _training("seeds", "--seeds 2 --epochs 2"),
    _training("stacked", "--seeds 2 --together 2 --epochs 2"),
    _training("magnitude", "--prune magnitude --density 0.3"),
    _training("movement", "--prune movement --density 0.3", SPARSE),
    _training("soft-movement", "--prune soft-movement --density 0.3"),
    _training("l0", "--prune l0 --density 0.3"),
    _training("proximal", "--prune proximal --density 0.3"),
    _training("heads-and-neurons", "--prune heads-and-neurons --density 0.5"),
    _training("layers", "--prune layers --density 0.5"),
    _training("taught", "--teacher {world}/runs/dense"),
    _again("embedding", f"{PAIRS} --kind embedding", *SENTENCE),
    _again("reranker", f"{PAIRS} --kind reranker".replace("pairs.csv", "ranked.csv"), REPORT),
    _again("pretrain", PRETRAIN, FINETUNE, measured=(CARD,)),
    _again("replaced tokens", f"{PRETRAIN} --objective electra", measured=(CARD,)),
    _again(
        "probe",
        "probe --model {world}/encoder --tasks tense,subject-number --limit 40 --max-unknown 1 --layers 0,1"
        " --no-controls --out out",
        REPORT,
    ),
    _again(
        "analyse",
        "analyse {world}/runs/dense --text {world}/texts.txt --measures geometry,identity --out out",
        REPORT,
    ),
    Kind(
        name="shrink", words=_words("shrink {world}/runs/thin --out out"), readers=(PREDICT, EVALUATE, BF16)
    ),
    _export("torch-bf16", "runs/dense"),
    _export("sparse", "runs/sparse", "--values fp32"),
    _export("onnx", "runs/dense", needs=ONNX),
    _export("openvino", "runs/dense", needs=(*ONNX, "openvino")),
    Kind(name="report", words=_words("report {world}/runs/dense {world}/runs/thin --out out.html")),
    Kind(name="evaluate", words=_words("evaluate {world}/runs/dense {world}/dev.csv --out out.json")),
    Kind(name="predict", words=_words("predict {world}/runs/dense {world}/texts.txt --out out.jsonl")),
    Kind(
        name="encode",
        words=_words("encode {world}/runs/dense {world}/texts.txt --out out.npy"),
    ),
    _compress(
        "compress",
        "{world}/runs/dense --quick --forms torch-bf16",
        _words("predict out/model {world}/texts.txt --out answers.jsonl"),
    ),
    _compress(
        "compress texts",
        "{world}/encoder --texts {world}/many.txt --epochs 1 --batch-size 32 --forms onnx",
        _words("encode out/model {world}/texts.txt --out vectors.npy"),
        ONNX,
    ),
    _again(
        "atlas",
        f"{TRAIN.replace('train ', 'atlas ', 1)} --mix none --methods magnitude --only export",
        measured=ATLAS_LOGS,
    ),
    Kind(
        name="run local",
        words=_words(f"run demo {RECIPE} --on local --workers 2 --out out"),
        readers=(_words("report out --out page.html"), _words(f"jobs demo {RECIPE} --out out")),
        measured=tuple(f"out/jobs/{arm}.log" for arm in ARMS.split(",")),
        is_slow=True,
    ),
    Kind(
        name="search",
        words=_words(
            f"search --space lr=1e-3..1e-2 --trials 2 {DATA} {PLAIN} --epochs 1 --device cpu --out out"
        ),
        readers=(REPORT,),
        measured=(
            "out/journal.jsonl",
            "out/figures.json",
            "out/jobs/trial-0000.log",
            "out/jobs/trial-0001.log",
        ),
        is_slow=True,
        needs=("optuna",),
    ),
)
BY_NAME = {kind.name: kind for kind in KINDS}
