"""Every family against transformers' own hidden states; names, folders and broken checkpoints."""

import copy
import itertools
import json
import socket
import threading
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import pytest
import torch
from torch import Tensor
from transformers import (
    AlbertConfig,
    AutoModelForMaskedLM,
    AutoTokenizer,
    BartConfig,
    BertConfig,
    BertModel,
    BertTokenizer,
    PretrainedConfig,
    PreTrainedModel,
)

from bermo.encoders import backbone, families
from bermo.encoders import hub as reach
from bermo.errors import BermoError
from tests.tiny import FAMILIES, make_batch, make_config, make_tokenizer, save_backbone


def make_encoder(config: PretrainedConfig) -> PreTrainedModel:
    torch.manual_seed(0)
    return backbone.load_encoder(config).encoder.eval()


def make_inputs(encoder: PreTrainedModel, batch: dict[str, Tensor]) -> dict[str, Any]:
    return backbone.make_inputs(encoder, batch["input_ids"], batch["attention_mask"], None, None)


def visited(encoder: PreTrainedModel, inputs: dict[str, Any], wanted: range) -> dict[int, Tensor]:
    seen: dict[int, Tensor] = {}
    with torch.no_grad():
        backbone.visit(encoder, inputs, wanted, seen.__setitem__)
    return seen


@pytest.mark.parametrize("family", FAMILIES)
def test_both_ways_give_the_hidden_states_of_transformers(family: str) -> None:
    encoder = make_encoder(make_config(family))
    inputs = make_inputs(encoder, make_batch(family))
    with torch.no_grad():
        expected = encoder(**inputs, output_hidden_states=True)
        stacked = backbone.hidden_states(encoder, inputs).hidden_states
    seen = visited(encoder, inputs, range(4))
    assert len(expected.hidden_states) == families.num_layers(encoder.config) == 4
    assert list(seen) == [0, 1, 2, 3]
    for j, hidden in enumerate(expected.hidden_states):
        assert torch.equal(seen[j], hidden)
        assert torch.equal(stacked[j], hidden)
    assert torch.equal(stacked[-1], expected.last_hidden_state)
    steps = [(a - b).abs().mean() for a, b in itertools.pairwise(stacked)]
    assert min(steps) > 0.1, "random layers must differ"


@pytest.mark.parametrize("family", FAMILIES)
def test_what_we_add_to_a_call_changes_nothing_without_padding(family: str) -> None:
    encoder, ids = make_encoder(make_config(family)), make_batch(family)["input_ids"][:1]
    inputs = make_inputs(encoder, {"input_ids": ids, "attention_mask": torch.ones_like(ids)})
    expected = encoder(input_ids=ids).last_hidden_state
    torch.testing.assert_close(visited(encoder, inputs, range(3, 4))[3], expected)


def test_albert_groups_of_layers_are_counted_call_by_call() -> None:
    config = make_config("albert")
    assert isinstance(config, AlbertConfig)
    config.num_hidden_layers, config.num_hidden_groups, config.inner_group_num = 4, 2, 2
    encoder = make_encoder(config)
    inputs = make_inputs(encoder, make_batch("albert"))
    expected = encoder(**inputs, output_hidden_states=True).hidden_states
    seen = visited(encoder, inputs, range(9))
    assert families.num_layers(encoder.config) == len(expected) == len(seen) == 9
    assert all(torch.equal(seen[j], expected[j]) for j in range(9))


@pytest.mark.parametrize("family", FAMILIES)
def test_no_dead_pooler_is_left_in_the_encoder(family: str) -> None:
    encoder = make_encoder(make_config(family))
    inputs = make_inputs(encoder, make_batch(family))
    encoder(**inputs).last_hidden_state.square().sum().backward()
    idle = [name for name, p in encoder.named_parameters() if p.grad is None]
    # XLNet reads its mask and segment vectors only when asked for masks or segments.
    assert all("mask_emb" in name or "seg_" in name or "r_s_bias" in name for name in idle), idle


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_reaches_no_real_token(family: str) -> None:
    encoder, batch = make_encoder(make_config(family)), make_batch(family)
    real = batch["attention_mask"].bool()
    other = {**batch, "input_ids": torch.where(real, batch["input_ids"], 9)}
    first = visited(encoder, make_inputs(encoder, batch), range(4))
    second = visited(encoder, make_inputs(encoder, other), range(4))
    for j in range(4):
        torch.testing.assert_close(first[j][real], second[j][real], atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("family", ["gpt2", "xlnet"])
def test_side_of_padding_changes_nothing_for_families_read_at_the_end(family: str) -> None:
    encoder = make_encoder(make_config(family))
    ids = torch.tensor([[7, 8, 9]])
    mask = torch.ones_like(ids)
    pad = torch.zeros(1, 2, dtype=torch.long)
    sides = [(ids, mask)]
    sides += [(torch.cat([ids, pad], 1), torch.cat([mask, pad], 1))]
    sides += [(torch.cat([pad, ids], 1), torch.cat([pad, mask], 1))]
    outputs = []
    for tokens, real in sides:
        inputs = make_inputs(encoder, {"input_ids": tokens, "attention_mask": real})
        outputs.append(visited(encoder, inputs, range(3, 4))[3][real.bool()])
    torch.testing.assert_close(outputs[0], outputs[1], atol=1e-5, rtol=1e-4)
    torch.testing.assert_close(outputs[0], outputs[2], atol=1e-5, rtol=1e-4)


def test_hooks_are_gone_after_a_visit_even_a_failed_one() -> None:
    encoder = make_encoder(make_config("deberta-v2"))
    inputs = make_inputs(encoder, make_batch("deberta-v2"))
    visited(encoder, inputs, range(4))

    def fail(index: int, hidden: Tensor) -> None:
        raise RuntimeError("stop here")

    with pytest.raises(RuntimeError, match="stop here"):
        backbone.visit(encoder, inputs, range(4), fail)
    hooks = [len(m._forward_pre_hooks) + len(m._forward_hooks) for m in encoder.modules()]
    assert sum(hooks) == 0


def test_threads_that_share_an_encoder_read_their_own_layers() -> None:
    encoder = make_encoder(make_config("bert"))
    batches = [make_inputs(encoder, make_batch("bert", seed=seed)) for seed in range(4)]
    expected = [visited(encoder, inputs, range(4)) for inputs in batches]
    seen: dict[int, list[dict[int, Tensor]]] = {}

    def work(index: int) -> None:
        seen[index] = [visited(encoder, batches[index], range(4)) for _ in range(20)]

    threads = [threading.Thread(target=work, args=(index,)) for index in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for index, runs in seen.items():
        assert all(torch.equal(run[j], expected[index][j]) for run in runs for j in range(4))


@pytest.mark.parametrize("family", ["deberta", "deberta-v2"])
def test_deberta_collects_no_layers_during_a_visit(family: str) -> None:
    encoder = make_encoder(make_config(family))
    kept: list[int] = []
    collector = encoder.get_submodule("encoder")
    collector.register_forward_hook(lambda m, a, out: kept.append(len(out.hidden_states or ())))
    visited(encoder, make_inputs(encoder, make_batch(family)), range(4))
    assert kept == [0]


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
    with pytest.raises(BermoError, match="Could not load the weights"):
        backbone.load_encoder(tmp_path)
    BertModel(make_config("bert")).save_pretrained(tmp_path)
    file = tmp_path / "model.safetensors"
    file.write_bytes(file.read_bytes()[:500])
    with pytest.raises(BermoError, match="Could not load the weights"):
        backbone.load_encoder(tmp_path)


def test_only_the_box_may_lack_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_config("bert").save_pretrained(tmp_path)
    monkeypatch.setattr(backbone, "BOX", tmp_path)
    assert backbone.resolve("box") == str(tmp_path)
    assert backbone.load_encoder("box").encoder.config.name_or_path == "box"


@pytest.mark.parametrize("name", ["./none", "/none", "~/none", "a/b/c", "none/", ""])
def test_a_folder_that_does_not_exist_never_reaches_the_hub(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: Any, **kwargs: Any) -> None:
        raise AssertionError("asked the hub")

    monkeypatch.setattr(backbone.AutoConfig, "from_pretrained", refuse)
    with pytest.raises(BermoError, match="There is no folder"):
        backbone.load_encoder(name)


def test_a_file_is_not_a_folder(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(BermoError, match="is a file"):
        backbone.resolve(tmp_path / "config.json")


def test_no_network_is_told_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(BermoError, match=r"Could not load the config of .nobody/nothing."):
        backbone.load_encoder("nobody/nothing")


def test_a_hub_out_of_reach_is_told_at_once_but_its_cache_is_read(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(reach, "can_ask", lambda: False)
    for name in ("nobody/nothing", "no body"):
        with pytest.raises(BermoError, match=f'There is no folder "{name}", and the model hub'):
            backbone.load_encoder(name)
    monkeypatch.setattr(reach, "try_to_load_from_cache", lambda *_: str(tmp_path / "config.json"))
    assert backbone.resolve("somebody/something") == "somebody/something"
    assert huggingface_hub.constants.HF_HUB_OFFLINE


def test_a_hub_is_asked_by_a_call_to_its_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(place: tuple[str, int], patience: float) -> None:
        asked.append(place)
        raise TimeoutError

    monkeypatch.setattr(reach, "getproxies", dict)
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://hub.example:8080")
    monkeypatch.setattr(socket, "create_connection", refuse)
    assert not reach.can_ask.__wrapped__()
    assert asked == [("hub.example", 8080)]
    monkeypatch.setattr(reach, "getproxies", lambda: {"https": "proxy"})
    assert reach.can_ask.__wrapped__()


def test_unsupported_families_are_named(tmp_path: Path) -> None:
    BartConfig(d_model=16).save_pretrained(tmp_path)
    with pytest.raises(BermoError, match=r'"bart" is not an encoder.*Supported: albert, bert'):
        backbone.load_encoder(tmp_path)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "no-such-thing"}))
    with pytest.raises(BermoError, match="Could not load the config"):
        backbone.load_encoder(tmp_path)


def test_segments_go_only_where_the_family_has_them() -> None:
    with_segments = [f for f in FAMILIES if families.has_segments(make_config(f))]
    assert with_segments == ["bert", "ernie", "albert", "electra", "xlnet", "mobilebert"]
    ids, segments = torch.tensor([[5, 6]]), torch.tensor([[0, 1]])
    for family in FAMILIES:
        encoder = make_encoder(make_config(family))
        inputs = backbone.make_inputs(encoder, ids, None, segments, None)
        assert ("token_type_ids" in inputs) == (family in with_segments)
        encoder(**inputs)


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
