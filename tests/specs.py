"""Specs of trainings that end in seconds, on the encoder in the box and generated sentences."""

from bermo.spec import DataSpec, ModelSpec, PruneSpec, RunSpec, TrainSpec

TINY = RunSpec(
    model=ModelSpec(head="random"),
    data=DataSpec(task="box/tense", limit=48, max_length=64),
    train=TrainSpec(epochs=4, batch_size=16, lr=1e-3, device="cpu"),
    prune=PruneSpec(method="movement", density=0.2),
)
