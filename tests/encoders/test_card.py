"""Model cards: their header is YAML that the hub's own library reads back."""

from typing import Any

import pytest
from huggingface_hub import ModelCard
from transformers import BertConfig

from bermo.encoders.card import PIPELINES, Evaluated, is_on_hub, with_header
from bermo.methods.pretraining.card import model_card as pretraining_card
from bermo.models.encoder import model_card
from bermo.models.tasks import BermoForSequenceClassification
from bermo.pretrain_spec import PretrainSpec
from bermo.spec import replace_in


def read(card: str) -> dict[str, Any]:
    """The header as the hub reads it; a model-index without one of its needed fields is refused by the
    library.
    """
    assert card.startswith("---\n")
    values: dict[str, Any] = ModelCard(card, ignore_metadata_errors=False).data.to_dict()
    return values


def test_a_header_holds_what_is_known_and_nothing_else() -> None:
    header = read(
        with_header(
            "# Title\n",
            title="a: 'name' # that YAML must quote",
            pipeline="text-classification",
            base="somebody/something",
            dataset="nyu-mll/glue",
            evaluated=[Evaluated(task="glue/cola", metric="matthews", value=61.23456)],
        )
    )
    result = header["model-index"][0]
    assert result["name"] == "a: 'name' # that YAML must quote"
    assert result["results"][0]["metrics"][0]["value"] == 61.2346
    assert result["results"][0]["dataset"]["split"] == "validation"
    assert header["metrics"] == ["matthews_correlation"]
    assert (header["base_model"], header["datasets"]) == ("somebody/something", ["nyu-mll/glue"])
    assert (header["library_name"], header["tags"]) == ("transformers", ["bermo"])
    assert not {"license", "language"} & set(header)
    bare = read(with_header("# Title\n", title="x", base="my-folder", dataset="a/b:c"))
    assert set(bare) == {"library_name", "tags"}


def test_an_encoder_made_from_the_box_has_its_licence_and_language() -> None:
    model = BermoForSequenceClassification.from_backbone("box")
    header = read(model_card(model, [Evaluated(task="glue/rte", metric="accuracy", value=60.0)]))
    assert (header["license"], header["language"]) == ("cc-by-sa-3.0", "en")
    assert header["pipeline_tag"] == "text-classification"
    assert header["model-index"][0]["results"][0]["task"]["type"] == "text-classification"
    assert "base_model" not in header


def test_a_pretrained_encoders_card_names_its_held_out_scores() -> None:
    spec = replace_in(PretrainSpec(), text={"files": ("a.txt",)})
    result = {
        "values": {"accuracy": 50.0, "perplexity": 12.0},
        "versions": {"torch": "2", "transformers": "5"},
        "device": "CPU",
        "unigram_entropy": 7.0,
    }
    numbers = ("num_parameters", "model_bytes", "num_documents", "num_tokens", "vocabulary", "steps")
    result |= dict.fromkeys((*numbers, "epochs", "seconds", "tokens_per_second"), 1)
    header = read(pretraining_card(spec, result, BertConfig()))
    assert header["pipeline_tag"] == "fill-mask"
    assert header["metrics"] == ["accuracy", "perplexity"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a/b", True), ("box", False), ("gte-small", False), ("a/b/c", False), ("", False), (None, False)],
)
def test_only_a_name_with_its_owner_counts_as_one_on_the_hub(name: str | None, expected: bool) -> None:
    assert is_on_hub(name) is expected


def test_every_model_class_has_its_pipeline() -> None:
    import bermo

    classes = {
        name
        for name in bermo.__all__
        if name.startswith("Bermo") and name not in ("BermoConfig", "BermoError")
    }
    assert set(PIPELINES) == classes
