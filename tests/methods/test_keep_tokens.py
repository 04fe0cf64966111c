"""Layers that hand on the tokens that matter: plain answers with all of them, the same answers in ONNX."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.encoders import tokens
from bermo.encoders.sites import encoder_of
from bermo.encoders.tokens import filter_tokens_
from bermo.errors import BermoError
from bermo.fields import check
from bermo.methods.checks import check_methods
from bermo.methods.finetune import finetune
from bermo.models.tasks import BermoForSequenceClassification
from bermo.nn.tokens import WHOLE
from bermo.progress import Quiet
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.shrink.run import make_small
from bermo.ship.shrink.spec import FisherSpec
from bermo.spec import MixSpec, ModelSpec, PruneSpec, RunSpec, replace_in
from bermo.vectors.encoder import load_encoder
from tests import tiny
from tests.methods.resumed import check_resumes_to_the_bit
from tests.ship.folders import make_model
from tests.specs import TINY

pytestmark = pytest.mark.usefixtures("shallow_box", "quick_traces")
KEPT = replace_in(
    replace(TINY, prune=PruneSpec(), model=ModelSpec(head="random", pooling="first")),
    train={"epochs": 4},
    method={"keep_tokens": 0.5},
)


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_all_tokens_kept_by_the_selection_itself_answer_as_the_plain_model(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = make_model(family, layers=2, pooling="first", mix="none")
    batch = tiny.make_batch(family)
    plain = model(**batch).logits
    filter_tokens_(encoder_of(model), [WHOLE, WHOLE])
    torch.testing.assert_close(model(**batch).logits, plain, atol=1e-6, rtol=0)
    monkeypatch.setattr(tokens, "_keeps_all", lambda known, index: False)
    torch.testing.assert_close(model(**batch).logits, plain, atol=1e-6, rtol=0)


def test_an_answer_does_not_depend_on_the_texts_beside_it() -> None:
    model = make_model("bert", layers=2, pooling="first", mix="none")
    filter_tokens_(encoder_of(model), [180, 90])
    batch = tiny.make_batch("bert")
    together = model(**batch).logits
    for row, length in enumerate(batch["attention_mask"].sum(1).tolist()):
        alone = {name: tensor[row : row + 1, :length] for name, tensor in batch.items()}
        torch.testing.assert_close(model(**alone).logits[0], together[row], atol=1e-6, rtol=1e-5)


def test_a_run_resumes_to_the_bit_keeps_the_wanted_share_and_exports_what_it_computes(tmp_path: Path) -> None:
    check_resumes_to_the_bit(KEPT, tmp_path, step=8)
    model = BermoForSequenceClassification.from_pretrained(tmp_path / "whole" / "model").eval()
    parts = model.config.kept_tokens
    assert parts == sorted(parts, reverse=True)
    assert sum(parts) / WHOLE / len(parts) == pytest.approx(0.5, abs=0.02)
    assert not any("token_learning" in name for name in model.state_dict())
    seen = []
    encoder_of(model).register_forward_hook(lambda module, args, output: seen.append(output[0].shape[1]))
    ids = torch.randint(5, 50, (3, 20))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    inputs["attention_mask"][1, 12:] = 0
    logits = model(**inputs).logits.detach().numpy()
    assert seen == [-(-20 * parts[-1] // WHOLE)]
    export(tmp_path / "whole", tmp_path / "onnx", ExportSpec(to="onnx"))
    import onnxruntime

    session = onnxruntime.InferenceSession(tmp_path / "onnx" / "model.onnx")
    names = {item.name for item in session.get_inputs()}
    more = {"token_type_ids": torch.zeros_like(ids)} | inputs
    answers = session.run(None, {name: more[name].numpy() for name in names})[0]
    np.testing.assert_allclose(answers, logits, atol=1e-4)
    with pytest.raises(BermoError, match="fewer tokens from layer to layer"):
        load_encoder(tmp_path / "whole")


def test_a_training_goes_on_from_an_encoder_that_leaves_tokens_out_and_reads_the_first(
    tmp_path: Path,
) -> None:
    finetune(replace_in(KEPT, train={"epochs": 1}), tmp_path / "kept")
    source = str(tmp_path / "kept" / "model")
    own = {"backbone": source, "pooling": None, "head": "probe"}
    plain = replace_in(KEPT, method={"keep_tokens": None}, model=own, train={"epochs": 1, "contrast": None})
    finetune(plain, tmp_path / "on")
    model, kept = (
        BermoForSequenceClassification.from_pretrained(tmp_path / name / "model") for name in ("on", "kept")
    )
    assert (model.config.pooling, model.config.kept_tokens) == ("first", kept.config.kept_tokens)
    assert kept.config.kept_tokens is not None
    refused: tuple[tuple[dict[str, dict[str, object]], str], ...] = (
        ({"model": {"pooling": "mean"}}, "only the first is sure"),
        ({"distill": {"teacher": str(tmp_path / "kept"), "hidden": 1.0}}, "that --distill-hidden reads"),
        ({"method": {"adversarial": "smart"}}, "that --adversarial reads"),
        ({"data": {"task": "box/arguments"}}, "tagging needs every token to the end"),
        ({"model": {"mix": MixSpec(kind="tensor")}}, "the head must read that one alone"),
    )
    for changes, sentence in refused:
        with pytest.raises(BermoError, match=sentence):
            finetune(replace_in(plain, **changes), tmp_path / "refused")
    with pytest.raises(BermoError, match="Units are refitted token by token"):
        make_small(tmp_path / "kept", tmp_path / "small", Quiet(), FisherSpec(density=0.5))
    assert not (tmp_path / "small").exists()


def test_tasks_that_need_every_token_are_refused_before_training(tmp_path: Path) -> None:
    tagging = replace_in(KEPT, data={"task": "box/arguments"})
    with pytest.raises(BermoError, match="needs every token to the end"):
        finetune(tagging, tmp_path / "tags")


def test_a_head_that_reads_the_mean_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BermoError, match="Add --pooling first"):
        finetune(replace_in(KEPT, model={"pooling": "mean"}), tmp_path / "mean")


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train": {"together": 2}}, "together with tokens that are left out"),
        ({"train": {"contrast": 1.0}}, "that --contrast reads"),
        ({"distill": {"teacher": "runs/dense", "hidden": 1.0}}, "that --distill-hidden reads"),
        ({"data": {"task": "own/embedding"}}, "one answer a text"),
    ],
)
def test_options_that_cannot_work_are_refused(changes: dict[str, dict[str, object]], sentence: str) -> None:
    spec = replace_in(RunSpec(), method={"keep_tokens": 0.5})
    with pytest.raises(BermoError, match=sentence):
        check_methods(check(replace_in(spec, **changes)))
