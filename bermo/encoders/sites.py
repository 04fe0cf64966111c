"""The prunable matrices of an encoder: every matrix of every layer, by name, whatever the family calls it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from bermo.encoders import backbone
from bermo.encoders.families import family_of
from bermo.errors import BermoError
from bermo.nn.masked import original_of


@dataclass(frozen=True)
class Site:
    """One prunable matrix: a parameter of a module inside a layer, and where it stands."""

    name: str
    layer: int
    module: nn.Module
    parameter: str
    is_transposed: bool = False
    """Stored as (inputs, outputs), so that rows are its second axis."""

    @property
    def weight(self) -> Tensor:
        """The matrix as the layer uses it: masked, if it has a mask."""
        return cast(Tensor, getattr(self.module, self.parameter))

    @property
    def original(self) -> Tensor:
        """The matrix without its mask."""
        return original_of(self.module, self.parameter)


def encoder_of(model: PreTrainedModel) -> PreTrainedModel:
    """Return the bare encoder inside a model of bermo's or of transformers'."""
    inner = model.base_model
    return cast(PreTrainedModel, getattr(inner, "backbone", inner))


def layers_of(model: PreTrainedModel) -> list[nn.Module]:
    """Return the distinct layers of the encoder inside a model, in order."""
    encoder = encoder_of(model)
    return backbone.layer_modules(encoder, family_of(encoder.config))


def prunable_sites(model: PreTrainedModel) -> list[Site]:
    """Return all matrices of all layers: attention and feed-forward, and nothing else; none is an error."""
    sites = find_sites(model)
    if not sites:
        family = encoder_of(model).config.model_type
        raise BermoError(
            f"{type(model).__name__} ({family}) has no matrix that can be pruned. Choose an encoder whose"
            " layers have linear ones."
        )
    return sites


def find_sites(model: PreTrainedModel) -> list[Site]:
    """Return the matrices of all layers, of which a family of LSTMs has none."""
    sites = []
    bare = family_of(encoder_of(model).config).bare_matrices
    for index, layer in enumerate(layers_of(model), start=1):
        for path, module in layer.named_modules():
            for parameter in _matrices(path, module, bare):
                name = ".".join(part for part in (f"layer.{index}", path, parameter) if part)
                sites.append(
                    Site(
                        name.removesuffix(".weight"),
                        index,
                        module,
                        parameter,
                        isinstance(module, Conv1D),
                    )
                )
    return sites


def linear_modules(model: nn.Module) -> list[tuple[nn.Module, bool]]:
    """Return the modules that multiply with a matrix, and whether it is stored as (inputs, outputs)."""
    known = [module for module in model.modules() if isinstance(module, nn.Linear | Conv1D)]
    return [(module, isinstance(module, Conv1D)) for module in known]


def _matrices(path: str, module: nn.Module, bare: Sequence[str]) -> list[str]:
    """Name the parameters of a module that are matrices; `bare` are the paths of bare ones."""
    if isinstance(module, nn.Linear | Conv1D):
        return ["weight"]
    return [name for parent, _, name in (matrix.rpartition(".") for matrix in bare) if parent == path]
