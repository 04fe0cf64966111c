"""Tiny trained-looking models in folders of their own: random weights, a real tokenizer, task.json."""

from pathlib import Path
from typing import Any

import torch

from bermo.encoders.sites import prunable_sites
from bermo.files import write_json
from bermo.models.encoder import BermoPreTrainedModel
from bermo.models.tasks import (
    BermoForMultipleChoice,
    BermoForQuestionAnswering,
    BermoForSequenceClassification,
    BermoForTokenClassification,
)
from tests import tiny

KINDS = {
    "classification": BermoForSequenceClassification,
    "regression": BermoForSequenceClassification,
    "tagging": BermoForTokenClassification,
    "span": BermoForQuestionAnswering,
    "choice": BermoForMultipleChoice,
}
LABELS = {
    "classification": ["bad", "good"],
    "regression": [],
    "tagging": ["O", "B-X"],
    "span": [],
    "choice": ["0", "1"],
}


def make_model(
    family: str = "bert", kind: str = "classification", layers: int = 1, **options: Any
) -> BermoPreTrainedModel:
    """Return a model with random weights, few layers and no dropout left on."""
    torch.manual_seed(0)
    config = tiny.make_config(family)
    config.num_hidden_layers = layers
    if getattr(config, "layer_types", None):
        config.layer_types = config.layer_types[:layers]
    if kind in ("classification", "tagging"):
        options["num_labels"] = 2
    if kind == "regression":
        options["num_labels"] = 1
    return KINDS[kind].from_backbone(config, **options).eval()


def save(model: BermoPreTrainedModel, folder: Path, kind: str = "classification") -> Path:
    """Write a model as a finished run would."""
    family = model.config.backbone.model_type
    model.save_pretrained(folder)
    tiny.make_tokenizer(family).save_pretrained(folder)
    text = ["text"] if kind in ("classification", "regression", "tagging") else []
    write_json(
        folder / "task.json",
        {
            "task": "own",
            "kind": kind,
            "labels": LABELS[kind],
            "text": text,
            "max_length": 32,
            "stride": 8,
        },
    )
    return folder


@torch.no_grad()
def prune_randomly_(model: BermoPreTrainedModel, density: float) -> None:
    """Set all but a random share of every prunable matrix to zero."""
    for site in prunable_sites(model):
        site.weight.mul_(torch.rand_like(site.weight) < density)


def write_rows(path: Path, count: int = 24) -> Path:
    """Write labelled texts of the tiny tokenizer's words."""
    pairs = [
        (
            f"the {'good' if i % 2 else 'bad'} {['film', 'cats'][i % 3 % 2]} .",
            ["bad", "good"][i % 2],
        )
        for i in range(count)
    ]
    path.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in pairs))
    return path
