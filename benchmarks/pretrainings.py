"""Pretrainings of one text at equal compute on one GPU: habits, ELMo against a Transformer, every objective.

    python benchmarks/pretrainings.py habits | elmo | objectives --text FILE… --minutes M --out OUT
        objectives: --data DATA (sst2, cola, mrpc and stsb, unpacked)      elmo: --senses FOLDER, if there is

1. pace    each arm trains a few steps alone, so that its seconds a step are known
2. arms    each gets as many steps as fit into M minutes at its pace, in several processes side by side;
           as soon as an encoder is there, it is judged: fine-tuned, probed, analysed

The same command goes on where it stopped. OUT/SET.json has a row for each encoder; pretraining_tables.py
makes a page of it. Where one sitting is too short for all arms, each has some (`--arms`), and `--beside
FILE` keeps the rows of the sittings before. An encoder of the box's size needs about 70 million tokens, a
minute of an H200, before it knows more than how often words come: in half of it nothing can be compared.
`--tiny` makes all of it small enough for seconds on a CPU.
"""

import argparse
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from benchmarks import pretraining_rows
from benchmarks.stages import Stage, run
from bermo.data.sentences.tasks import TASKS

LARGE = "--batch-size 1024 --lr-batch 256"
"""Four times the usual rows a step."""
HABITS = {
    "plain": "",
    "lamb": f"--optimizer lamb {LARGE} --lr 2e-3",
    "large-adamw": LARGE,
    "layer-drop": "--layer-drop 0.1",
    "average": "--average 0.999",
    "recompute": "--recompute",
}
OBJECTIVES = {
    "mlm": "",
    "word": "--masking word",
    "phrase": "--masking phrase",
    "span": "--masking span",
    "structbert": "--objective structbert",
    "electra": "--objective electra",
    "elmo": "--objective elmo",
    "xlnet": "--objective xlnet",
    "inner-mix": "--inner-mix within",
}
OTHER_MASKS = ("word", "phrase", "span", "structbert")
"""Arms whose held-out text is masked in another way, and whose saved head can guess single tokens too."""
EPOCHS = {"sst2": 1, "cola": 10, "mrpc": 10, "stsb": 10}
PROBES = ("tree-depth", "tense")
TINY = ("--device", "cpu", "--precision", "fp32")
SHORT = 1 / 3
"""Share of the time that short rows get; three layers get half of it before they are stacked to six."""


@dataclass(frozen=True)
class Settings:
    """What is asked for, and how large it is."""

    texts: tuple[str, ...]
    minutes: float
    out: Path
    seeds: tuple[int, ...]
    data: Path | None
    senses: str | None
    arms: tuple[str, ...]
    tasks: tuple[str, ...]
    is_tiny: bool

    def chosen(self, known: Mapping[str, str]) -> dict[str, str]:
        """Return the arms that were asked for, or all."""
        return {name: options for name, options in known.items() if not self.arms or name in self.arms}

    def paced(self, arms: Mapping[str, str]) -> dict[str, str]:
        """Return the arms whose pace is known: one whose trial failed does not stop the others."""
        places = {name: self.out / "pace" / name / "plan.json" for name in arms}
        return {name: options for name, options in arms.items() if places[name].exists()}

    def pretrain(self, options: str, model: str | None = None, length: int = 128) -> tuple[str, ...]:
        """Return the words of a pretraining but for its steps and seed: from the box's shape, or a model."""
        words = ["pretrain", "--text", *self.texts, "--looks", "5"]
        is_elmo = "--objective elmo" in options
        if self.is_tiny:
            size = "--cells 8 --projection 4 --filters 1:4,2:4" if is_elmo else "--config tiny --width 16"
            words += [] if model else ["--vocabulary", "400", *size.split()]
            words += ["--held-out", "0.2", "--length", "40", *TINY]
        else:
            words += [] if model else ["--tokenizer", "box", *([] if is_elmo else ["--config", "box"])]
            words += ["--precision", "bf16", "--checkpoint-minutes", "2", "--length", str(length)]
        words += ["--model", model] if model else []
        return (*words, *options.split(), *(["--batch-size", "8"] if self.is_tiny else []))


def pace(settings: Settings, arms: Mapping[str, str], length: int = 128) -> list[Stage]:
    """Return a trial of each arm, to be run alone."""
    trial = ("--minutes", "0.0001" if settings.is_tiny else "0.02")
    return [
        Stage(f"pace/{name}", (*settings.pretrain(options, length=length), *trial), "plan.json")
        for name, options in arms.items()
    ]


def steps(settings: Settings, name: str, share: float = 1.0) -> int:
    """Return how many steps of an arm fit into a share of the minutes."""
    plan = json.loads((settings.out / "pace" / name / "plan.json").read_text(encoding="utf-8"))
    return max(2, int(60 * settings.minutes * share / plan["seconds_a_step"]))


def arm(settings: Settings, name: str, options: str, seed: int, length: int = 128) -> Stage:
    """Return an arm's pretraining of one seed."""
    words = settings.pretrain(options, length=length)
    return Stage(f"{name}-{seed}", (*words, "--steps", str(steps(settings, name)), "--seed", str(seed)))


def habits(settings: Settings) -> list[Callable[[], list[Stage]]]:
    """Return the waves of the habits: each arm, short rows first, half the layers first."""
    known, own = settings.chosen(HABITS), "--layers 1" if settings.is_tiny else "--layers 3"
    alone = known | {"short-first": "--length 32", "stacked": own}
    alone = {name: options for name, options in alone.items() if not settings.arms or name in settings.arms}
    extra = {"plain": ""} if {"short-first", "stacked"} & set(alone) else {}

    def train() -> list[Stage]:
        paced = settings.paced(extra | alone)
        arms = [name for name in known if name in paced]
        stages = [arm(settings, name, known[name], seed) for name in arms for seed in settings.seeds]
        for seed in settings.seeds if "plain" in paced else ():
            stages += short_first(settings, seed) if "short-first" in paced else []
            stages += stacked(settings, seed, own) if "stacked" in paced else []
        return stages

    return [lambda: pace(settings, extra | alone), train]


def short_first(settings: Settings, seed: int) -> list[Stage]:
    """Return the pretraining whose first rows are short."""
    short = steps(settings, "short-first", SHORT)
    words = settings.pretrain(f"--short-length 32 --short-steps {short}")
    whole = short + steps(settings, "plain", 1 - SHORT)
    return [Stage(f"short-first-{seed}", (*words, "--steps", str(whole), "--seed", str(seed)))]


def stacked(settings: Settings, seed: int, own: str) -> list[Stage]:
    """Return the pretraining of half the layers, and the one that goes on with twice as many."""
    below, layers = f"below/stacked-{seed}", "--layers 2" if settings.is_tiny else "--layers 6"
    few = (*settings.pretrain(own), "--steps", str(steps(settings, "stacked", 0.5)), "--seed", str(seed))
    all_of_them = settings.pretrain(layers, model=f"{settings.out}/{below}/model")
    half = ("--steps", str(steps(settings, "plain", 0.5)), "--seed", str(seed))
    return [Stage(below, few), Stage(f"stacked-{seed}", (*all_of_them, *half), needs=(below,))]


def elmo(settings: Settings) -> list[Callable[[], list[Stage]]]:
    """Return the waves of a biLM beside a Transformer of as many layers: probes, senses, geometry."""
    arms = settings.chosen({"elmo": "--objective elmo", "transformer": "--layers 3"})
    tasks = ("tense",) if settings.is_tiny else tuple(TASKS)

    def train() -> list[Stage]:
        paced = settings.paced(arms)
        trained = [arm(settings, name, paced[name], seed, 64) for name in paced for seed in settings.seeds]
        names = [stage.name for stage in trained]
        return [*trained, *(probe(settings, name, tasks) for name in names), look(settings, names)]

    return [lambda: pace(settings, arms, 64), train]


def look(settings: Settings, names: Sequence[str]) -> Stage:
    """Return the analysis of all encoders together."""
    pretraining_rows.write_lines(settings.texts, settings.out / "texts.txt", 2000)
    senses = ["--senses", settings.senses] if settings.senses else []
    words = ["analyse", *(f"{settings.out}/{name}/model" for name in names), *senses]
    words += ["--measures", "geometry,layers" + (",senses" if senses else "")]
    words += ["--text", f"{settings.out}/texts.txt"]
    words += ["--device", "cpu", "--max-texts", "40"] if settings.is_tiny else []
    return Stage("look", tuple(words), "figures.json", tuple(names))


def objectives(settings: Settings) -> list[Callable[[], list[Stage]]]:
    """Return the waves of every objective: four tasks, two probes, and single masked tokens where need be."""
    arms = settings.chosen(OBJECTIVES)

    def train() -> list[Stage]:
        paced = settings.paced(arms)
        trained = [arm(settings, name, paced[name], seed) for name in paced for seed in settings.seeds]
        judges = [judge(settings, name, seed) for name in paced for seed in settings.seeds]
        return [*trained, *(stage for stages in judges for stage in stages)]

    return [lambda: pace(settings, arms), train]


def judge(settings: Settings, arm: str, seed: int) -> list[Stage]:
    """Return what an encoder is judged by."""
    name = f"{arm}-{seed}"
    stages = [tune(settings, name, task, seed) for task in settings.tasks]
    stages.append(probe(settings, name, PROBES))
    if arm in OTHER_MASKS:
        # A step at a rate of 0 changes nothing; then single tokens of held-out text are masked.
        words = settings.pretrain("--lr 0 --steps 1", f"{settings.out}/{name}/model")
        stages.append(Stage(f"masked/{name}", words, needs=(name,)))
    return stages


def tune(settings: Settings, name: str, task: str, seed: int) -> Stage:
    """Return the fine-tuning of an encoder for a task."""
    words = f"train --task {task} --seeds {seed} --keep none --checkpoint-minutes 100".split()
    words += ["--model", f"{settings.out}/{name}/model", "--data", f"{settings.data}/{task}"]
    if settings.is_tiny:
        words += ["--epochs", "1", "--batch-size", "8", "--max-length", "16", *TINY]
    else:
        words += ["--epochs", str(EPOCHS[task]), "--precision", "bf16"]
    return Stage(f"tuned/{name}-{task}", tuple(words), needs=(name,))


def probe(settings: Settings, name: str, tasks: tuple[str, ...]) -> Stage:
    """Return the probes of an encoder's frozen layers, read by the mean of a text."""
    words = ["probe", "--model", f"{settings.out}/{name}/model", "--tasks", ",".join(tasks)]
    words += ["--pooling", "mean", "--no-controls", *(["--limit", "60"] if settings.is_tiny else [])]
    return Stage(f"probe/{name}", tuple(words), f"{tasks[-1]}.json", (name,))


SETS = {"habits": habits, "elmo": elmo, "objectives": objectives}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("set", choices=SETS)
    parser.add_argument("--text", nargs="+", required=True)
    parser.add_argument("--minutes", type=float, required=True)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--senses")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--workers", type=int, default=6)
    parser.add_argument("--arms", default="", help="names with commas between; default: all")
    parser.add_argument("--tasks", default=",".join(EPOCHS))
    parser.add_argument("--pace-only", action="store_true", help="stop after the first wave")
    parser.add_argument("--beside", type=Path, help="rows of this file are kept where no new one replaces it")
    parser.add_argument("--tiny", action="store_true")
    given = parser.parse_args()
    if given.set == "objectives" and given.data is None:
        parser.error("objectives need --data: a folder with sst2, cola, mrpc and stsb.")
    settings = Settings(
        texts=tuple(given.text),
        minutes=given.minutes,
        out=given.out,
        seeds=tuple(map(int, given.seeds.split(","))),
        data=given.data,
        senses=given.senses,
        arms=tuple(filter(None, given.arms.split(","))),
        tasks=tuple(given.tasks.split(",")),
        is_tiny=given.tiny,
    )
    failed = []
    measure, train = SETS[given.set](settings)
    # The first wave measures time, and must have the machine for itself.
    failed += run(measure(), settings.out, 1)
    failed += [] if given.pace_only else run(train(), settings.out, given.workers)
    pretraining_rows.write(given.set, settings.out, given.beside)
    if failed:
        print(f"Failed: {', '.join(failed)}. The same command tries these again.", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
