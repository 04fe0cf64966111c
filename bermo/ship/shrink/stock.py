"""A model in the shape and the class of stock transformers, which loads it without bermo.

    layers    those that are left
    neurons   as many in every layer: the most that live in one, rounded up to eight; the rest are dead ones
    heads     all, dead ones too: a stock config cannot say that a layer has fewer

A head is carried over where transformers' class of the family computes the same. The mix of layers cannot be:
a model with one is refused.
"""

import copy
from collections.abc import Mapping, Sequence

import torch
from torch import nn
from transformers import PreTrainedModel

from bermo.data.tasks import PIPELINES, Kind
from bermo.encoders.card import Evaluated, with_header
from bermo.encoders.shape import is_stock
from bermo.encoders.sites import encoder_of
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from bermo.methods.student import keep_count_
from bermo.models.encoder import BermoPreTrainedModel
from bermo.runs.loading import AUTO_CLASSES
from bermo.runs.stock import stock_config
from bermo.runs.task_file import TrainedTask
from bermo.ship.runtimes.torch_candidate import logits_of
from bermo.ship.shrink.constants import fold_constants_
from bermo.ship.shrink.delete import Model, cut_unread_, living_units

TOGETHER = 8
"""Neurons are counted in so many: kernels of matrices are made for such widths."""
POOLED: Mapping[str, Mapping[str, str]] = {
    "bert": {"dense": "bert.pooler.dense", "out": "classifier"},
    "roberta": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "xlm-roberta": {"dense": "classifier.dense", "out": "classifier.out_proj"},
    "mpnet": {"dense": "classifier.dense", "out": "classifier.out_proj"},
}
"""Families whose class for texts has our head, out(tanh(dense(first token))), and how its parts are called.
DistilBERT's has ReLU there and ELECTRA's GELU.
"""
PLAIN = ("bert", "roberta", "xlm-roberta", "mpnet", "distilbert", "electra")
"""Families whose classes for tags and spans are one matrix on the last layer."""
CLOSE = 1e-4
EXPORT = "bermo export --to onnx-int8 --layout hub writes it for other tools with all that it has."


def even_out(model: Model, read_share: float) -> Model:
    """Return a copy of a model in a shape that its family's config can say; its answers stay."""
    config = model.config
    if config.mix["kind"] != "none" and not _reads_one_layer(model):
        raise BermoError(
            f'The model reads a mix of its layers ("{config.mix["kind"]}"), which stock transformers has not.'
            f" Train it with --mix none; {EXPORT}"
        )
    if getattr(config.backbone, "inner_mix", "none") != "none":
        raise BermoError(f"The model has a mix inside, which stock transformers has not. {EXPORT}")
    even = copy.deepcopy(model)
    fold_constants_(even)
    cut_unread_(even, read_share)
    if not is_stock(even.config.backbone, even.config.structure):
        raise BermoError(
            "The model was shrunk already, and its layers differ. Give the one that it was made from."
        )
    even.config.structure = None
    living = [len(living_units(group)) for group in groups_of(even) if group.kind == "neurons"]
    count = next(group.count for group in groups_of(even) if group.kind == "neurons")
    kept = min(count, -(-max(*living, 1) // TOGETHER) * TOGETHER)
    if kept < count:
        keep_count_(even, kept)
    return even


def _reads_one_layer(model: BermoPreTrainedModel) -> bool:
    """Tell whether the mix is one layer as it is, so that it is none when the layers above it are gone."""
    return model.config.mix["kind"] == "second-to-last"


def stock_model(model: BermoPreTrainedModel, trained: TrainedTask) -> PreTrainedModel:
    """Return the same model as one of transformers' own class; it must give the same answers."""
    kind, family = trained.task.kind, model.config.backbone.model_type
    parts = _parts_of_head(model, kind, family)
    config = stock_config(model.config, trained)
    stock: PreTrainedModel = AUTO_CLASSES[kind].from_config(config).eval()
    found = stock.base_model.load_state_dict(encoder_of(model).state_dict(), strict=False)
    lost = [name for name in found.missing_keys if "pooler" not in name] + found.unexpected_keys
    if lost:
        raise BermoError(f"transformers' {family} has other weights than this model ({lost[0]}). {EXPORT}")
    for ours, theirs in parts.items():
        stock.get_submodule(theirs).load_state_dict(model.get_submodule(f"head.{ours}").state_dict())
    _check_same(model, stock)
    return stock


def _parts_of_head(model: BermoPreTrainedModel, kind: Kind, family: str) -> Mapping[str, str]:
    if kind in ("tagging", "span") and family in PLAIN:
        return {"out": "classifier" if kind == "tagging" else "qa_outputs"}
    is_text = kind in ("classification", "multi-label", "regression", "reranker")
    if model.config.pairs == "apart":
        raise BermoError(
            "The model reads the two texts of a pair apart, and no class of transformers does. Train it with"
            " --pairs joined, or use bermo export."
        )
    if is_text and model.config.pooling == "first" and family in POOLED:
        return POOLED[family]
    raise BermoError(
        f"transformers' class for {kind} with {family} has another head than this model"
        f" (pooling {model.config.pooling}, tanh). {EXPORT}"
    )


@torch.no_grad()
def _check_same(model: nn.Module, stock: nn.Module) -> None:
    """Refuse a model whose answers are others in transformers' own class."""
    torch.manual_seed(0)
    largest = int(encoder_of(model).config.vocab_size)  # type: ignore[arg-type]
    ids = torch.randint(min(5, largest - 1), largest, (4, 12))
    batch = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    for ours, theirs in zip(*(logits_of(item.eval()(**batch)) for item in (model, stock)), strict=True):
        if (ours - theirs).norm() > CLOSE * ours.norm():
            raise BermoError(f"transformers' own class gives other answers with these weights. {EXPORT}")


def stock_card(stock: PreTrainedModel, kind: Kind, evaluated: Sequence[Evaluated]) -> str:
    """Return the card of a model that loads without bermo."""
    name = type(stock).__name__
    lines = [
        f"# {name}",
        "",
        "```python",
        f"from transformers import AutoTokenizer, {name}",
        f'model = {name}.from_pretrained("this folder")',
        'tokenizer = AutoTokenizer.from_pretrained("this folder")',
        "```",
    ]
    text = "\n".join(lines) + "\n"
    return with_header(text, title=name, pipeline=PIPELINES[kind], evaluated=evaluated)
