"""Models that came from elsewhere: no pickle is opened, no code is run, and what is loaded is whole."""

import json
import os
import pickle
import re
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import bermo
from bermo.encoders.backbone import load_config, load_encoder, load_tokenizer
from bermo.encoders.trust import check_finite, check_weights, config_of, not_finite
from bermo.errors import BermoError
from bermo.methods.teacher import load_teacher
from bermo.models.tasks import has_segments
from bermo.runs.trained import open_trained
from bermo.vectors import load_encoder as load_for_vectors
from tests.hostile_models import Hostile, add_code, change_json, make_pickle
from tests.ship.folders import make_model, save
from tests.tiny import save_backbone

Loader = Callable[[Path], Any]
OURS: dict[str, Loader] = {
    "from_pretrained": bermo.BermoForSequenceClassification.from_pretrained,
    "open_trained": lambda folder: open_trained(folder).load_model(),
    "teacher": load_teacher,
    "vectors": load_for_vectors,
}
ENCODERS: dict[str, Loader] = {
    "load_encoder": load_encoder,
    "from_backbone": bermo.BermoForSequenceClassification.from_backbone,
    "with head": bermo.BermoForMaskedLM.from_backbone,
    "vectors": load_for_vectors,
}


@pytest.fixture
def encoder(tmp_path: Path) -> Path:
    return save_backbone("bert", tmp_path / "encoder")


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    return save(make_model(layers=2), tmp_path / "ours")


@pytest.fixture
def mark(tmp_path: Path) -> Path:
    return tmp_path / "mark"


@pytest.fixture(autouse=True)
def never_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """No question is asked on the terminal; whoever answers yes would let the code run."""
    monkeypatch.setattr("builtins.input", lambda *text: pytest.fail("a question was asked"))


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_in_a_pickle_is_refused_and_never_opened(name: str, encoder: Path, mark: Path) -> None:
    make_pickle(encoder, mark)
    with pytest.raises(BermoError, match="pickle, which may run any code"):
        ENCODERS[name](encoder)
    assert not mark.exists()


@pytest.mark.parametrize("name", OURS)
def test_a_model_in_a_pickle_is_refused_and_never_opened(name: str, ours: Path, mark: Path) -> None:
    make_pickle(ours, mark)
    with pytest.raises(BermoError, match="pickle, which may run any code"):
        OURS[name](ours)
    assert not mark.exists()


def test_a_pickle_that_an_index_of_safetensors_names_is_never_opened(encoder: Path, mark: Path) -> None:
    names = load_file(encoder / "model.safetensors")
    make_pickle(encoder, mark, "part.bin")
    index = encoder / "model.safetensors.index.json"
    for part in ("part.bin", "../encoder/part.safetensors"):
        index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, part)}))
        with pytest.raises(BermoError, match="only safetensors beside it"):
            load_encoder(encoder)
    index.write_text(json.dumps({"metadata": {}, "weight_map": dict.fromkeys(names, "part.safetensors")}))
    with pytest.raises(BermoError, match=r"lacks part\.safetensors"):
        load_encoder(encoder)
    assert not mark.exists()


def test_the_pickle_would_leave_its_mark(mark: Path) -> None:
    pickle.loads(pickle.dumps(Hostile(mark)))
    assert mark.exists()


def test_the_sentence_about_a_pickle_says_how_to_convert_it(encoder: Path) -> None:
    weights = load_file(encoder / "model.safetensors")
    (encoder / "model.safetensors").unlink()
    torch.save(weights, encoder / "pytorch_model.bin")
    with pytest.raises(BermoError) as refused:
        check_weights(encoder)
    command = re.search(r'python -c "(.*)"', str(refused.value))
    assert command is not None
    exec(command[1])
    loaded = load_encoder(encoder).encoder.state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in loaded.items())


def test_code_that_comes_with_an_unknown_type_is_refused(encoder: Path, mark: Path) -> None:
    add_code(encoder, mark, AutoConfig="hostile.Thing", AutoModel="hostile.Thing")
    change_json(encoder / "config.json", model_type="hostile")
    for load in (load_config, load_encoder, has_segments, load_for_vectors, open_trained):
        with pytest.raises(BermoError, match="code"):
            load(encoder)
    assert not mark.exists()


def test_code_that_comes_with_a_known_type_is_left_alone(encoder: Path, mark: Path) -> None:
    add_code(
        encoder,
        mark,
        AutoConfig="hostile.Thing",
        AutoModel="hostile.Thing",
        AutoModelForMaskedLM="hostile.Thing",
        AutoTokenizer="hostile.Thing",
    )
    tokenizer = encoder / "tokenizer_config.json"
    change_json(tokenizer, auto_map={"AutoTokenizer": ["hostile.Thing", "hostile.Thing"]})
    assert type(load_encoder(encoder).encoder).__name__ == "BertModel"
    assert type(load_encoder(load_config(encoder)).encoder).__name__ == "BertModel"
    for load in (load_tokenizer, load_for_vectors, *ENCODERS.values()):
        load(encoder)
    assert not mark.exists()


def test_code_of_a_tokenizer_is_never_run(encoder: Path, mark: Path) -> None:
    add_code(encoder, mark)
    change_json(
        encoder / "tokenizer_config.json",
        tokenizer_class="HostileTokenizer",
        auto_map={"AutoTokenizer": ["hostile.Thing", None]},
    )
    try:
        load_tokenizer(encoder)
    except BermoError as refused:
        assert "code of its own" in str(refused)  # noqa: PT017
    assert not mark.exists()


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"attn_implementation": "evil/kernel"}, "evil/kernel, which bermo never runs"),
        ({"_attn_implementation": {"": "evil/kernel:f"}}, "evil/kernel:f"),
        ({"text_config": {"attn_implementation": "evil/kernel"}}, "evil/kernel"),
        ({"transformers_weights": "adapter_model.bin"}, "names a file of weights of its own"),
        ({"num_hidden_layers": 2**31}, "num_hidden_layers 2,147,483,648, but no encoder has over 1,000"),
    ],
)
def test_a_config_names_neither_code_nor_files(changes: dict[str, Any], sentence: str, encoder: Path) -> None:
    change_json(encoder / "config.json", **changes)
    with pytest.raises(BermoError, match=sentence):
        load_encoder(encoder)


def test_a_tokenizer_whose_length_is_no_number_is_refused(encoder: Path) -> None:
    change_json(encoder / "tokenizer_config.json", model_max_length="long")
    with pytest.raises(BermoError, match=r"model_max_length .* must be a number, but got 'long'"):
        load_tokenizer(encoder)


def test_a_tokenizer_whose_word_for_the_unknown_is_unknown_is_refused(encoder: Path) -> None:
    change_json(encoder / "tokenizer_config.json", unk_token="", sep_token="\u202enowhere")
    with pytest.raises(BermoError, match="Could not load the tokenizer"):
        load_tokenizer(encoder)


def test_an_adapter_is_refused(encoder: Path) -> None:
    (encoder / "adapter_config.json").write_text('{"base_model_name_or_path": "elsewhere"}')
    with pytest.raises(BermoError, match="adapter"):
        load_encoder(encoder)


def put(folder: Path, **tensors: torch.Tensor | None) -> None:
    """Replace tensors of a saved model by their names, __ standing for a dot; None takes one out."""
    saved = load_file(folder / "model.safetensors")
    saved |= {name.replace("__", "."): tensor for name, tensor in tensors.items()}
    kept = {name: tensor for name, tensor in saved.items() if tensor is not None}
    save_file(kept, folder / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("name", OURS)
def test_a_model_that_lacks_a_tensor_is_refused_by_its_name(name: str, ours: Path) -> None:
    put(ours, bermo__backbone__encoder__layer__0__attention__self__query__weight=None)
    with pytest.raises(BermoError, match=re.escape("layer.0.attention.self.query.weight")):
        OURS[name](ours)


@pytest.mark.parametrize("name", ["from_pretrained", "open_trained", "teacher"])
def test_a_head_that_is_missing_and_a_tensor_that_is_unknown_are_refused(name: str, ours: Path) -> None:
    put(ours, bermo__layer_mix__extra=torch.zeros(2))
    with pytest.raises(BermoError, match=r"unknown weights: bermo\.layer_mix\.extra"):
        OURS[name](ours)
    put(ours, bermo__layer_mix__extra=None, head__out__weight=None)
    with pytest.raises(BermoError, match=r"lacks head\.out\.weight"):
        OURS[name](ours)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize("name", OURS)
def test_a_model_with_a_weight_that_is_no_number_is_refused(name: str, value: float, ours: Path) -> None:
    put(ours, bermo__backbone__embeddings__LayerNorm__bias=torch.full((16,), value))
    with pytest.raises(BermoError, match=r"infinite or not a number: .*LayerNorm\.bias"):
        OURS[name](ours)


@pytest.mark.parametrize("name", ENCODERS)
def test_an_encoder_with_a_weight_that_is_no_number_is_refused(name: str, encoder: Path) -> None:
    put(encoder, encoder__layer__1__output__dense__bias=torch.full((16,), torch.nan))
    with pytest.raises(BermoError, match=re.escape("layer.1.output.dense.bias")):
        ENCODERS[name](encoder)


def test_a_plain_model_of_transformers_with_a_head_is_checked_alike(tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    from tests.tiny import make_config, make_tokenizer

    folder = tmp_path / "plain"
    AutoModelForSequenceClassification.from_config(make_config("bert")).save_pretrained(folder)
    make_tokenizer().save_pretrained(folder)
    open_trained(folder).load_model()
    put(folder, classifier__bias=torch.full((2,), torch.nan))
    with pytest.raises(BermoError, match=r"classifier\.bias"):
        open_trained(folder).load_model()
    put(folder, classifier__bias=None)
    with pytest.raises(BermoError, match=r"lacks classifier\.bias"):
        open_trained(folder).load_model()


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_finite_numbers_with_an_infinite_sum_are_finite(dtype: torch.dtype) -> None:
    most, model = torch.finfo(dtype).max, torch.nn.Linear(2, 1, bias=False, dtype=dtype)
    for numbers, wanted in (
        ([most, most], []),
        ([float("inf"), -float("inf")], ["weight"]),
        ([float("nan"), 1.0], ["weight"]),
    ):
        model.weight.data = torch.tensor([numbers], dtype=dtype)
        assert not_finite(model) == wanted


def test_names_of_tensors_that_are_not_finite() -> None:
    model = make_model(layers=1)
    assert not_finite(model) == []
    check_finite("it", model)
    with torch.no_grad():
        model.head.out.bias[0] = float("-inf")
    assert not_finite(model) == ["head.out.bias"]


@pytest.mark.parametrize("content", ["", "[1]", '{"model_type":', "[" * 100_000, "\x00", '{"model_type": 3}'])
def test_a_damaged_config_is_a_sentence(content: str, encoder: Path) -> None:
    (encoder / "config.json").write_text(content, encoding="utf-8")
    with pytest.raises(BermoError):
        config_of(encoder)


@pytest.mark.parametrize("name", ["tokenizer.json", "model.safetensors"])
@pytest.mark.parametrize(
    "content", [b"", b"{", b"[" * 100_000, b"\xff" * 100, b"\x08" + b"\0" * 7 + b"{}      "]
)
def test_a_damaged_tokenizer_or_safetensors_is_a_sentence(name: str, content: bytes, encoder: Path) -> None:
    (encoder / name).write_bytes(content)
    with pytest.raises(BermoError, match=r"Could not load|lacks|no tokenizer"):
        load_for_vectors(encoder)


@pytest.mark.skipif(os.name == "nt", reason="Windows has no such rights")
def test_weights_can_be_read_by_whom_the_umask_lets(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        make_model(layers=1).save_pretrained(tmp_path / "open")
        os.umask(0o077)
        make_model(layers=1).save_pretrained(tmp_path / "private")
    finally:
        os.umask(before)
    for name, mode in (("open", 0o644), ("private", 0o600)):
        assert stat.S_IMODE((tmp_path / name / "model.safetensors").stat().st_mode) == mode
