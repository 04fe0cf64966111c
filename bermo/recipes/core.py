"""Recipes of the core: the plain encoder beside the mixed one on real tasks.

Arms share everything but the mix. `bermo list` shows the first line of each docstring.
"""

from collections.abc import Callable
from dataclasses import replace

from bermo.spec import (
    USUAL_MIX,
    DataSpec,
    Experiment,
    MixSpec,
    ModelSpec,
    PruneSpec,
    RunSpec,
    TrainSpec,
    replace_in,
)

GLUE = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli")
PAPER_SEEDS = (9, 25, 39, 52, 59, 63, 77, 87, 91, 96)


def measured(
    *,
    data: DataSpec,
    train: TrainSpec,
    model: ModelSpec = ModelSpec(),  # noqa: B008
    prune: PruneSpec = PruneSpec(),  # noqa: B008
    seeds: tuple[int, ...] = (1,),
) -> RunSpec:
    """The spec of a recipe whose numbers are measured: nothing in it is chosen from the data, and the head
    starts at random.
    """
    few = {"contrast": 0.0, "average": "off"}
    usual = few | {"lr": 3e-5, "epochs": 3.0, "batch_size": 32, "evaluations": 1}
    left_open = {name: value for name, value in usual.items() if getattr(train, name) is None}
    return RunSpec(
        model=replace(model, head="random", mix=replace(model.mix, kind=model.mix.kind or USUAL_MIX)),
        data=data,
        train=replace(train, **left_open),  # type: ignore[arg-type]
        prune=prune,
        seeds=seeds,
    )


def beside_plain(spec: RunSpec) -> Experiment:
    """The run itself, and the same run with the plain encoder."""
    plain = replace_in(spec, model={"mix": replace(spec.model.mix, kind="none")})
    return Experiment(arms={"plain": plain, "mix": spec})


def demo() -> Experiment:
    """Does it run on this machine? The box, plain and mixed, beside an untrained encoder, on two questions.

    960 generated sentences each: is the subject (the object) singular or plural? Guessing gives 50, a bag of
    words about 70.
    Cost: 2 min 15 s on two CPU cores. Expected, one seed: subject 99.2 plain, 99.1 mix, 50 untrained;
    object 87.4, 88.1, 74.1.
    """
    arms = {}
    for task in ("subject-number", "object-number"):
        spec = measured(
            data=DataSpec(task=f"box/{task}", limit=960, max_length=64),
            train=TrainSpec(epochs=1, batch_size=16, lr=5e-4),
        )
        both = beside_plain(spec).arms
        untrained = replace_in(both["plain"], model={"untrained": True})
        arms[f"{task}-untrained"] = untrained
        arms |= {f"{task}-{name}": arm for name, arm in both.items()}
    return Experiment(arms=arms)


def sst2() -> Experiment:
    """Sentiment on all of SST-2, three epochs: does the mix cost anything when nothing is pruned?

    Source: the paper's Table 2 (BERT-base: plain 91.74, mix 92.43; one run each).
    Cost: 5 minutes a seed on one H200 with gte-small, while nine other trainings ran on it.
    Expected with gte-small, three seeds: plain 91.9, mix 92.1, no difference shown (results/README.md).
    Needs: model.backbone=<folder or name> data.folder=<folder with train.tsv and dev.tsv>
    """
    return beside_plain(
        measured(
            model=ModelSpec(backbone="bert-base-uncased"),
            data=DataSpec(task="sst2"),
            train=TrainSpec(epochs=3, lr=3e-5, precision="bf16"),
            seeds=PAPER_SEEDS[:3],
        )
    )


def squad() -> Experiment:
    """Question answering on SQuAD 1.1, passages read in overlapping pieces of 384 tokens: EM and F1.

    Source: the paper's Table 2 (BERT-base F1: plain 76.95, mix 77.43, against 88.1 published elsewhere).
    Cost: 5 minutes an arm on one H200 with gte-small.
    Expected with gte-small, one seed: EM/F1 plain 76.4/85.1, mix 76.6/85.4.
    Needs: model.backbone=<folder or name> data.folder=<folder with train-v1.1.json and dev-v1.1.json>
    """
    return beside_plain(
        measured(
            model=ModelSpec(backbone="bert-base-uncased"),
            data=DataSpec(task="squad", max_length=384, stride=128),
            train=TrainSpec(epochs=2, lr=5e-5, precision="bf16"),
            seeds=PAPER_SEEDS[:1],
        )
    )


def conll2003() -> Experiment:
    """Named entities of CoNLL-2003: entity F1 with the tagger reading the mix.

    Cost: 1 to 2 minutes a seed on one H200 with gte-small. The text is cased, so an uncased encoder loses a
    little.
    Expected with gte-small, three seeds, valid: plain 91.2, mix 91.4, no difference shown.
    Needs: model.backbone=<folder or name> data.folder=<folder with the three files>
    """
    return beside_plain(
        measured(
            model=ModelSpec(backbone="bert-base-uncased"),
            data=DataSpec(task="conll2003"),
            train=TrainSpec(epochs=3, lr=5e-5, precision="bf16"),
            seeds=PAPER_SEEDS[:3],
        )
    )


def readings() -> Experiment:
    """Which reading of "normalise across the layer" is best? across, within, tensor, raw and plain on SST-2.

    Source: the paper's Figure 4 leaves the axis open. Cost: five times that of sst2.
    """
    base = sst2().arms["mix"]
    return Experiment(
        arms={kind: _with_mix(base, kind) for kind in ("across", "within", "tensor", "raw", "none")}
    )


def ways() -> Experiment:
    """The other ways to read several layers, on CoNLL-2003: those of BERT's Table 7, and a gate.

    Source: Devlin et al., Table 7 (second-to-last 95.6, sum of the last four 95.9, concatenation 96.1).
    """
    base = conll2003().arms["mix"]
    kinds = ("none", "second-to-last", "sum-last-four", "concat-last-four", "gate", "across")
    return Experiment(arms={kind: _with_mix(base, kind) for kind in kinds})


def _with_mix(spec: RunSpec, kind: str) -> RunSpec:
    return replace_in(spec, model={"mix": MixSpec(kind=kind)})  # type: ignore[arg-type]


def glue(task: str) -> Callable[[], Experiment]:
    """Make the recipe of one GLUE task."""

    def recipe() -> Experiment:
        return beside_plain(
            measured(
                model=ModelSpec(backbone="bert-base-uncased"),
                data=DataSpec(task=task),
                train=TrainSpec(epochs=3, lr=3e-5, precision="bf16"),
                seeds=PAPER_SEEDS[:5],
            )
        )

    recipe.__doc__ = (
        f"GLUE's {task}: plain beside mixed, three epochs, five seeds, scored on dev.\n\n"
        "    Needs: model.backbone=<folder or name> data.folder=<folder with the task's files>\n    "
    )
    return recipe
