"""The paper's questions in a form that one GPU answers in minutes, on SST-2 or another task.

The seeds of an arm are trained at once. Movement pruning keeps weights by the score alone, as in the paper,
or by size · σ(score). Every recipe takes another task: `data.task=rte data.folder=… train.epochs=10` (SQuAD:
data.max_length=384 train.batch_size=16).
"""

from dataclasses import replace

from bermo.recipes.core import PAPER_SEEDS, beside_plain, measured
from bermo.spec import DataSpec, DistillSpec, Experiment, ModelSpec, PruneSpec, RunSpec, TrainSpec, replace_in

METHODS = {
    "magnitude": PruneSpec(method="magnitude", density=0.1),
    "score": PruneSpec(method="movement", density=0.1, rank="score"),
    "size": PruneSpec(method="movement", density=0.1, rank="size"),
    "soft": PruneSpec(method="soft-movement", density=0.1),
    "l0": PruneSpec(method="l0", density=0.1),
}


def _base(num_seeds: int, epochs: float) -> RunSpec:
    return measured(
        model=ModelSpec(backbone="bert-base-uncased", freeze_embeddings=True),
        data=DataSpec(task="sst2", max_length=128),
        train=TrainSpec(epochs=epochs, lr=3e-5, precision="bf16", together=num_seeds),
        seeds=PAPER_SEEDS[:num_seeds],
    )


def _both(spec: RunSpec, name: str) -> dict[str, RunSpec]:
    return {f"{name}-{arm}": one for arm, one in beside_plain(spec).arms.items()}


def stability() -> Experiment:
    """Does training survive movement pruning to 10 %, by score and by size? SST-2, ten seeds (Table 3).

    Source: Table 3. BERT-base: 2 of 10 seeds survive (79.85, 82.22); BERMo: 10 of 10 (85.88 to 87.61), 25
    epochs.
    Cost: 21,050 steps a seed, ten seeds at once, four arms.
    Needs: model.backbone=<folder or name> data.folder=<folder of the task>
    """
    base = _base(10, 10)
    return Experiment(
        arms=_both(replace(base, prune=METHODS["score"]), "score")
        | _both(replace(base, prune=METHODS["size"]), "size")
    )


def distillation() -> Experiment:
    """How much does a teacher give back at 10 %? SST-2, ten seeds, ten epochs, plain beside mixed (Table 5).

    Needs: model.backbone=<folder or name> data.folder=<folder of the task>
    distill.teacher=<a dense run of the same task>
    """
    base = replace(_base(10, 10), prune=METHODS["size"])
    return beside_plain(replace(base, distill=DistillSpec(teacher="runs/dense")))


def gradual_mix() -> Experiment:
    """Is a mix that opens or closes gradually worth more than a fixed one at 10 %? SST-2, five seeds.

    A mix that closes ships as a plain encoder: it pays where only the training needs all layers.
    Cost: 6,315 steps a seed, four arms; where the mix moves, one seed after the other.
    Needs: model.backbone=<folder or name> data.folder=<folder of the task>
    """
    base = replace(_base(5, 3), prune=METHODS["size"])
    raw = replace_in(base, model={"mix": replace(base.model.mix, kind="raw")})
    alone = replace_in(raw, train={"together": 1})
    return Experiment(
        arms={
            "plain": replace_in(base, model={"mix": replace(base.model.mix, kind="none")}),
            "fixed": raw,
            "opens": replace_in(alone, method={"mix_path": "opens"}),
            "closes": replace_in(alone, method={"mix_path": "closes"}),
        }
    )


def pruning_methods() -> Experiment:
    """Magnitude, movement by score and by size, soft movement, L0: all at 10 %, plain beside mixed (Table 4).

    L0 and soft movement reach the density by a Lagrangian: no λ has to be guessed, and all methods keep as
    many weights.
    Needs: model.backbone=<folder or name> data.folder=<folder of the task>
    """
    arms: dict[str, RunSpec] = {}
    for name, prune in METHODS.items():
        arms |= _both(replace(_base(5, 3), prune=prune), name)
    return Experiment(arms=arms)


def convergence() -> Experiment:
    """How many epochs do plain and mixed need to 10 %, by size? SST-2, 1 to 10 epochs, five seeds (Figure 5).

    Needs: model.backbone=<folder or name> data.folder=<folder of the task>
    """
    arms: dict[str, RunSpec] = {}
    for epochs in (1, 2, 3, 5, 10):
        arms |= _both(replace(_base(5, epochs), prune=METHODS["size"]), f"{epochs}-epochs")
    return Experiment(arms=arms)


def baselines() -> Experiment:
    """What do as many weights score without any pruning? The first one or two layers, also with a teacher.

    gte-small's first layer is 8 % of its encoder, its first two are 17 %.
    Needs: model.backbone=<folder or name> data.folder=<folder of the task>, and for the arms taught-1 and
    taught-2
    distill.teacher=<a dense run>
    """
    arms: dict[str, RunSpec] = {}
    for count in (1, 2):
        dense = replace_in(_base(5, 3), model={"first_layers": count})
        arms |= _both(dense, f"first-{count}")
        taught = DistillSpec(teacher="runs/dense", student_layers=tuple(range(1, count + 1)))
        arms[f"taught-{count}"] = replace(beside_plain(_base(5, 10)).arms["plain"], distill=taught)
    return Experiment(arms=arms)


def dense() -> Experiment:
    """The whole encoder, nothing pruned, embeddings frozen as in the pruned runs: the score to compare with.

    Needs: model.backbone=<folder or name> data.folder=<folder of the task>
    """
    return beside_plain(_base(5, 3))
