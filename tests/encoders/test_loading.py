"""Names, folders and checkpoints of encoders: what loads, and what each broken one is told."""

import copy
import json
import socket
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from transformers import (
    AutoModelForMaskedLM,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    BertModel,
    BertTokenizer,
)

from bermo.encoders import backbone, hub, trust, where
from bermo.encoders.failures import loading
from bermo.errors import BermoError
from tests.tiny import FAMILIES, make_config, make_tokenizer, save_backbone


@pytest.mark.parametrize("family", FAMILIES)
def test_a_saved_encoder_loads_with_the_same_weights(family: str, tmp_path: Path) -> None:
    save_backbone(family, tmp_path)
    loaded = backbone.load_encoder(tmp_path)
    again = backbone.load_encoder(str(tmp_path))
    for (name, one), (_, two) in zip(
        loaded.encoder.named_parameters(), again.encoder.named_parameters(), strict=True
    ):
        assert torch.equal(one, two), name
    assert loaded.encoder.config.name_or_path == tmp_path.name


def test_pretrained_pooler_is_handed_on_and_a_missing_one_is_not(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = BertModel(make_config("bert"))
    model.save_pretrained(tmp_path / "with")
    BertModel(make_config("bert"), add_pooling_layer=False).save_pretrained(tmp_path / "without")
    pooler = backbone.load_encoder(tmp_path / "with").pooler
    assert pooler is not None
    assert torch.equal(pooler["weight"], model.pooler.dense.weight)
    assert backbone.load_encoder(tmp_path / "without").pooler is None


def test_half_precision_on_disk_becomes_float32(tmp_path: Path) -> None:
    BertModel(make_config("bert")).half().save_pretrained(tmp_path)
    encoder = backbone.load_encoder(tmp_path).encoder
    assert {p.dtype for p in encoder.parameters()} == {torch.float32}


def test_a_checkpoint_of_another_shape_of_model_is_loaded_from_under_its_head(
    tmp_path: Path,
) -> None:
    torch.manual_seed(0)
    model = AutoModelForMaskedLM.from_config(make_config("distilbert"))
    model.save_pretrained(tmp_path)
    encoder = backbone.load_encoder(tmp_path).encoder
    for name, weight in encoder.state_dict().items():
        assert torch.equal(weight, model.distilbert.state_dict()[name])


def test_missing_weights_are_an_error(tmp_path: Path) -> None:
    model = BertModel(make_config("bert"))
    weights = model.state_dict()
    lost = {k: v for k, v in weights.items() if not k.startswith("encoder.layer.2")}
    model.save_pretrained(tmp_path, state_dict=lost)
    with pytest.raises(BermoError, match=r"lacks 16 of the encoder's weights"):
        backbone.load_encoder(tmp_path)


def test_a_folder_without_weights_or_with_torn_ones_is_an_error(tmp_path: Path) -> None:
    make_config("bert").save_pretrained(tmp_path)
    with pytest.raises(BermoError, match="has a config but no weights"):
        backbone.load_encoder(tmp_path)
    BertModel(make_config("bert")).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(BermoError, match="Could not load the weights"):
        backbone.load_encoder(tmp_path)


@pytest.mark.parametrize("kept", [0, 5, 500, 8_000])
def test_a_weights_file_that_was_cut_off_is_named_with_what_to_do(tmp_path: Path, kept: int) -> None:
    BertModel(make_config("bert")).save_pretrained(tmp_path, max_shard_size="20KB")
    shards = sorted(tmp_path.glob("*.safetensors"))
    assert len(shards) > 1
    shards[1].write_bytes(shards[1].read_bytes()[:kept])
    with pytest.raises(BermoError) as raised:
        backbone.load_encoder(tmp_path)
    message = str(raised.value)
    assert f"{shards[1].name} is cut off or damaged" in message
    assert message.endswith("Copy this file anew from where the model was saved.")


def test_only_the_box_may_lack_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_config("bert").save_pretrained(tmp_path)
    monkeypatch.setattr(where, "BOX", tmp_path)
    assert where.resolve("box") == str(tmp_path)
    assert backbone.load_encoder("box").encoder.config.name_or_path == "box"


@pytest.mark.parametrize("name", ["./none", "/none", "~/none", "a/b/c", "none/", ""])
def test_a_folder_that_does_not_exist_never_reaches_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("asked the hub")

    monkeypatch.setattr(trust.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(BermoError, match="There is no folder"):
        backbone.load_encoder(name)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BermoError, match="is a file"):
        where.resolve(tmp_path / "config.json")


def test_no_network_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BermoError, match=r"Could not load the config of .nobody/nothing."):
        backbone.load_encoder("nobody/nothing")


def test_a_hub_out_of_reach_is_told_at_once_but_its_cache_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "can_ask", lambda: False)
    for name in ("nobody/nothing", "no body"):
        with pytest.raises(BermoError, match=f'There is no folder "{name}", and the model hub'):
            backbone.load_encoder(name)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: str(tmp_path / "config.json"))
    assert where.resolve("somebody/something") == "somebody/something"
    assert hub.is_local("somebody/something")
    assert not huggingface_hub.constants.HF_HUB_OFFLINE


@pytest.mark.parametrize(
    ("name", "can_ask", "expected"),
    [("box", True, True), ("somebody/something", True, False), ("somebody/something", False, True)],
)
def test_the_hub_is_asked_only_for_a_model_of_its_own_that_can_be_asked_for(
    name: str, can_ask: bool, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def note(folder: str, local_files_only: bool, **options: Any) -> None:
        raise OSError(local_files_only)

    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(hub, "can_ask", lambda: can_ask)
    monkeypatch.setattr(hub, "try_to_load_from_cache", lambda *_: "config.json")
    monkeypatch.setattr(trust, "cached_file", lambda *_, **__: None)
    for loader, load in (
        (trust.AutoConfig, backbone.load_config),
        (backbone.AutoTokenizer, backbone.load_tokenizer),
    ):
        monkeypatch.setattr(loader, "from_pretrained", note)
        with pytest.raises(BermoError, match=f": {expected}\\."):
            load(name)


def test_a_hub_is_asked_by_a_call_to_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(place: tuple[str, int], patience: float) -> None:
        asked.append(place)
        raise TimeoutError

    monkeypatch.setattr(hub, "getproxies", dict)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://hub.example:8080")
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert not hub.can_ask.__wrapped__()
    assert asked == [("hub.example", 8080)]
    monkeypatch.setattr(hub, "getproxies", lambda: {"https": "proxy"})
    assert hub.can_ask.__wrapped__()


def test_unsupported_families_are_named(tmp_path: Path) -> None:
    BartConfig(d_model=16).save_pretrained(tmp_path)
    with pytest.raises(BermoError, match=r'"bart" is not an encoder.*Supported: albert, bert'):
        backbone.load_encoder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-thing"}))
    with pytest.raises(BermoError, match="Could not load the config"):
        backbone.load_encoder(tmp_path)


def test_a_config_is_copied_and_not_changed() -> None:
    config = make_config("modernbert")
    before = copy.deepcopy(config)
    backbone.load_encoder(config)
    assert config.to_dict() == before.to_dict()
    assert config._attn_implementation == before._attn_implementation


def test_attention_of_a_config_is_kept() -> None:
    config = BertConfig(**make_config("bert").to_dict())
    config._attn_implementation = "eager"
    assert backbone.load_encoder(config).encoder.config._attn_implementation == "eager"


@pytest.mark.parametrize("family", ["bert", "gpt2", "xlnet"])
def test_tokenizers_load_and_can_pad(family: str, tmp_path: Path) -> None:
    save_backbone(family, tmp_path)
    tokenizer = backbone.load_tokenizer(tmp_path)
    batch = tokenizer(["the cat saw a dog .", "a film"], padding=True, return_tensors="pt")
    assert batch["input_ids"].shape == batch["attention_mask"].shape
    assert tokenizer.tokenize("The cat") == ["the", "cat"]
    assert tokenizer.padding_side == ("left" if family == "xlnet" else "right")


def test_a_tokenizer_of_special_tokens_only_is_refused(tmp_path: Path) -> None:
    make_config("bert").save_pretrained(tmp_path)
    with pytest.raises(BermoError, match="tokenizer"):
        backbone.load_tokenizer(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    saved = json.loads((tmp_path / "tokenizer.json").read_text())
    saved["model"]["vocab"] = {"<pad>": 0, "<unk>": 1, "<cls>": 2, "<sep>": 3, "<mask>": 4}
    (tmp_path / "tokenizer.json").write_text(json.dumps(saved))
    with pytest.raises(BermoError, match="There is no tokenizer"):
        backbone.load_tokenizer(tmp_path)


@pytest.mark.parametrize("kind", ["BertTokenizer", "TokenizersBackend"])
def test_capitals_that_are_kept_stay_so_after_saving(kind: str, tmp_path: Path) -> None:
    source = "box"
    if kind == "BertTokenizer":
        words = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "dog", "sees", "cafe", ".")
        source = str(tmp_path / "bert")
        BertTokenizer(vocab={word: at for at, word in enumerate(words)}).save_pretrained(source)
        (tmp_path / "bert" / "config.json").write_text(json.dumps({"model_type": "bert"}))
    right, wrong = backbone.load_tokenizer(source), backbone.load_tokenizer(source, "off")
    assert type(wrong).__name__ == kind
    text = "The Dog sees the café ."
    ids = wrong(text)["input_ids"]
    assert ids.count(wrong.unk_token_id) >= 2
    assert right.unk_token_id not in right(text)["input_ids"]
    for turn in range(2):  # what was loaded again is saved again
        folder = tmp_path / str(turn)
        wrong.save_pretrained(folder)
        if kind == "BertTokenizer":
            (folder / "config.json").write_text(json.dumps({"model_type": "bert"}))
        wrong = AutoTokenizer.from_pretrained(folder)
        assert wrong(text)["input_ids"] == ids
        assert backbone.load_tokenizer(folder)(text)["input_ids"] == ids


def test_ctrl_c_that_a_library_turned_into_its_own_error_is_no_failure_to_load() -> None:
    with pytest.raises(KeyboardInterrupt), loading("weights", "encoder"):
        raise RuntimeError("something in C++") from KeyboardInterrupt()
