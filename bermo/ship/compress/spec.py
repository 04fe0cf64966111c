"""What a compressed model has to reach, from which data it is made, and how. No torch is imported."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from bermo.fields import Rules, option, positional
from bermo.ship.bench.spec import MOST_ROWS, MOST_THREADS, BenchSpec
from bermo.ship.compress.goal import Goal, read_goal
from bermo.ship.runtimes.forms import FormName
from bermo.spec import Precision

GOAL = "the goal (one of them)"
TRAINING = "each training (default: as the run was trained)"
MAX_LOSS, MAX_LOSS_OF_VECTORS = 1.0, 3.0
TRAIN_FIELDS = ("epochs", "batch_size", "lr", "precision")


Aim = Literal["throughput", "latency", "size"]
BEST = "with --to best"


@dataclass(frozen=True, kw_only=True)
class BestSpec:
    """What is wanted of the best form: the most rows a second, the shortest call or the smallest files."""

    aim: Aim = option("throughput", "what the best form is best at", "for", title=BEST)
    forms: tuple[FormName, ...] = option(
        (), "forms to choose from", shown="all that this machine can run", title=BEST
    )
    batches: tuple[int, ...] = option(
        (1, 32), "rows a call in the bench", "batch", title=BEST, least=1, most=MOST_ROWS
    )
    lengths: tuple[int, ...] = option((32, 128), "tokens a row in the bench", title=BEST, least=1)
    rounds: int = option(3, "rounds of the bench", title=BEST, least=1)
    threads: int | None = option(
        None, "threads in the bench", shown="all cores", title=BEST, least=1, most=MOST_THREADS
    )

    @property
    def bench(self) -> BenchSpec:
        """The bench that compares the forms."""
        return BenchSpec(batches=self.batches, lengths=self.lengths, rounds=self.rounds)


@dataclass(frozen=True, kw_only=True)
class CompressSpec:
    """What is wanted, from which data, and by which way."""

    run: Path = positional("a finished run, or a saved model's folder")
    latency: str | None = option(
        None, "longest median call, batch 1, shortest length", metavar="5ms", title=GOAL
    )
    speedup: str | None = option(
        None, "times the throughput of the dense torch model", metavar="4", title=GOAL
    )
    size: str | None = option(None, "largest size of the model's files", metavar="10MB", title=GOAL)
    train: str | None = option(None, "your training file; default: the run's", metavar="FILE")
    valid: str | None = option(None, "your validation file; default: the run's", metavar="FILE")
    folder: str | None = option(
        None, "the folder with a named task's files; default: the run's", "data", metavar="FOLDER"
    )
    texts: Path | None = option(
        None,
        "texts without labels, for a sentence encoder: its own vectors teach the small one",
        metavar="FILE",
    )
    unlabelled: str | None = option(
        None,
        "texts without labels that each training reads too, by the run's answers alone: one a line, or a"
        " table",
        metavar="FILE",
    )
    vocabulary: tuple[Path, ...] = option(
        (), "texts: only their words are kept", metavar="FILE", is_list=True
    )
    is_quick: bool = option(False, "no training: choose by Fisher information and refit", "quick")
    candidates: tuple[Path, ...] = option(
        (),
        "smaller models made elsewhere (on a GPU machine, say) that take part in the choice",
        metavar="FOLDER",
        is_list=True,
    )
    with_training: bool = option(True, "train nothing: only measure the candidates", "no-training")
    epochs: float | None = option(None, "passes over the training data", title=TRAINING, over=0)
    batch_size: int | None = option(None, "rows a step", title=TRAINING, least=1)
    lr: float | None = option(None, "learning rate", title=TRAINING, least=0)
    precision: Precision | None = option(None, "arithmetic of the forward pass", title=TRAINING)
    limit: int | None = option(None, "use only the first so many training rows", title=TRAINING, least=1)
    hard: float | None = option(
        None,
        "weight of the labels beside the teacher's answers; 0 = none",
        shown="0.1",
        title=TRAINING,
        least=0,
    )
    forms: tuple[FormName, ...] = option((), "forms to choose from", shown="all that this machine can run")
    calibrate: Path | None = option(
        None, "texts that fix the ranges of activations; default: --valid", metavar="FILE"
    )
    max_loss: float | None = option(
        None, "points of score that a form may cost", least=0, shown="1; 3 with --texts"
    )
    batches: tuple[int, ...] = option((1, 32), "rows a call in the bench", "batch", least=1, most=MOST_ROWS)
    lengths: tuple[int, ...] = option((32, 128), "tokens a row in the bench", least=1)
    rounds: int = option(3, "rounds of the bench", least=1)
    threads: int | None = option(None, "threads in the bench", shown="all cores", least=1, most=MOST_THREADS)

    @property
    def goal(self) -> Goal:
        """The one goal that was given."""
        return read_goal(self.latency, self.speedup, self.size)

    @property
    def allowed_loss(self) -> float:
        """Points of score that a form may cost: the teacher's own vectors have 100."""
        usual = MAX_LOSS if self.texts is None else MAX_LOSS_OF_VECTORS
        return usual if self.max_loss is None else self.max_loss

    @property
    def training(self) -> dict[str, Any]:
        """Fields of TrainSpec that differ from the run's."""
        given = {name: getattr(self, name) for name in TRAIN_FIELDS}
        return {name: value for name, value in given.items() if value is not None}

    @property
    def bench(self) -> BenchSpec:
        """The bench that compares the candidates."""
        return BenchSpec(batches=self.batches, lengths=self.lengths, rounds=self.rounds)

    def rules(self) -> Rules:
        _ = self.goal
        names = [path.name for path in self.candidates]
        twice = sorted({name for name in names if names.count(name) > 1})
        return [
            (not twice, f'Two candidates are called "{"".join(twice[:1])}". Rename one of the folders.'),
            (
                self.texts is None or not (self.train or self.folder or self.is_quick),
                "--texts are all that a sentence encoder learns from. Leave --train, --data and --quick out.",
            ),
            (
                self.unlabelled is None or (self.with_training and not self.is_quick),
                "--unlabelled is what trainings read. Leave it out, or --quick and --no-training.",
            ),
            (
                self.unlabelled is None or self.texts is None,
                "--texts are all that a sentence encoder learns from. Leave --unlabelled out.",
            ),
            (
                self.with_training or bool(names),
                "--no-training leaves nothing to choose from. Name some --candidates.",
            ),
        ]
