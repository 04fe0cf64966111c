"""Trainings whose steps are not captured as CUDA graphs, nor computed by fused kernels."""

from bermo.encoders.tied import num_groups
from bermo.models.encoder import BermoPreTrainedModel
from bermo.spec import RunSpec


def needs_plain_steps(spec: RunSpec, model: BermoPreTrainedModel) -> str | None:
    """Name the option that a captured step cannot follow, if there is one: a step computes something else
    than the step before it, or layers share their weights.
    """
    given = {
        "--keep-tokens": spec.method.keep_tokens is not None,
        "--rewind": spec.prune.rewind is not None,
        "--prune proximal": spec.prune.method == "proximal",
        "--tie-layers": num_groups(model.core.backbone) is not None,
    }
    return next((option for option, is_given in given.items() if is_given), None)
