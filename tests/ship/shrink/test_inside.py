"""An encoder inside another model: cut, put back, taught by the big one, exported. The model around it has
the shape of GLiNER's: words that are compared with the labels that stand in the same text.
"""

import copy
from pathlib import Path

import onnxruntime
import pytest
import torch
from torch import Tensor, nn
from transformers import AutoModel, PreTrainedModel

import bermo
from bermo.encoders.sites import layers_of
from bermo.encoders.structure import groups_of
from bermo.errors import BermoError
from tests.tiny import make_config


class TokenRep(nn.Module):
    def __init__(self, encoder: PreTrainedModel) -> None:
        super().__init__()
        self.encoder = encoder

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return self.encoder(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


class Tagger(nn.Module):
    """The first tokens are labels, the others words; a score for every word and label."""

    def __init__(self, encoder: PreTrainedModel, num_labels: int = 2) -> None:
        super().__init__()
        width = encoder.config.hidden_size
        self.token_rep, self.num_labels = TokenRep(encoder), num_labels
        self.words, self.labels = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        hidden_BTD = self.token_rep(input_ids, attention_mask)
        labels_BLD, words_BWD = hidden_BTD[:, : self.num_labels], hidden_BTD[:, self.num_labels :]
        return self.words(words_BWD) @ self.labels(labels_BLD).transpose(1, 2)


def make(family: str = "bert", layers: int = 3) -> Tagger:
    torch.manual_seed(0)
    config = make_config(family)
    config.num_hidden_layers = layers
    return Tagger(AutoModel.from_config(config)).eval()


def batches(count: int, rows: int = 8) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(5, 40, (count, rows, 9), generator=generator)
    return [{"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids]


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "deberta-v2"])
def test_layers_heads_and_neurons_go_and_the_model_still_answers(family: str) -> None:
    config = make_config(family)
    torch.manual_seed(0)
    encoder = AutoModel.from_config(config).eval()
    before = {group.kind: group.count for group in groups_of(encoder)}
    small = bermo.cut_encoder(encoder, heads=0.5, neurons=0.25)
    after = {group.kind: group.count for group in groups_of(small)}
    assert after == {"heads": before["heads"] // 2, "neurons": before["neurons"] // 4}
    model = Tagger(encoder)
    bermo.replace_encoder_(model, "token_rep.encoder", small)
    assert model(**batches(1)[0]).isfinite().all()


def test_layers_that_stay_are_the_same() -> None:
    encoder = make().token_rep.encoder
    small = bermo.cut_encoder(encoder, layers=(1, 3))
    kept = zip(layers_of(small), (layers_of(encoder)[0], layers_of(encoder)[2]), strict=True)
    for ours, theirs in kept:
        pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)
    whole = bermo.cut_encoder(encoder, layers=(1, 2, 3))
    batch = batches(1)[0]
    assert torch.equal(whole(**batch).last_hidden_state, encoder(**batch).last_hidden_state)
    assert small.config.num_hidden_layers == 2
    assert encoder.config.num_hidden_layers == 3


def test_a_part_that_the_encoder_lacks_does_not_come_back() -> None:
    encoder = bermo.box()  # it has no pooler
    small = bermo.cut_encoder(encoder, layers=(1, 2))
    names = {name for name, child in encoder.named_children() if child is not None}
    assert {name for name, child in small.named_children() if child is not None} == names


def test_even_neurons_are_stock_and_other_shapes_come_back(tmp_path: Path) -> None:
    encoder, batch = make().token_rep.encoder, batches(1)[0]
    stock = bermo.cut_encoder(encoder, neurons=0.5)
    stock.save_pretrained(tmp_path)
    again = AutoModel.from_pretrained(tmp_path).eval()
    assert torch.equal(again(**batch).last_hidden_state, stock(**batch).last_hidden_state)
    small = bermo.cut_encoder(encoder, layers=(2,), heads=0.5, neurons=0.5)
    built = AutoModel.from_config(copy.deepcopy(small.config)).eval()
    bermo.give_shape_(built)
    built.load_state_dict(small.state_dict())
    assert torch.equal(built(**batch).last_hidden_state, small(**batch).last_hidden_state)


def test_the_small_model_learns_the_answers_of_the_big_one() -> None:
    big = make()
    small = copy.deepcopy(big)
    encoder = bermo.cut_encoder(big.token_rep.encoder, layers=(1, 3), heads=0.5, neurons=0.5)
    bermo.replace_encoder_(small, "token_rep.encoder", encoder)
    before = {name: p.clone() for name, p in big.named_parameters()}
    losses = bermo.teach_(small, big, batches(1) * 40, lr=3e-3)
    assert losses[-1] < 0.5 * losses[0]
    assert all(torch.equal(p, before[name]) for name, p in big.named_parameters())


def test_a_student_may_read_other_token_ids() -> None:
    big, small = make(), make()
    pair = (batches(1)[0], batches(2)[1])
    with torch.no_grad():
        ours, theirs = small(**pair[0]), big(**pair[1])
    wanted = float(((ours - theirs) ** 2).mean() / (theirs**2).mean())
    for part in small.modules():
        if isinstance(part, nn.Dropout):
            part.p = 0.0
    assert bermo.teach_(small, big, [pair])[0] == pytest.approx(wanted, rel=1e-4)


def test_the_whole_model_is_exported_and_answers_other_sizes(tmp_path: Path) -> None:
    model = make(layers=1)
    encoder = bermo.cut_encoder(model.token_rep.encoder, heads=0.5)
    bermo.replace_encoder_(model, "token_rep.encoder", encoder)
    assert bermo.export_module(model, batches(1)[0], tmp_path / "model.onnx") < 1e-4
    batch = {name: value[:3, :7] for name, value in batches(1)[0].items()}
    session = onnxruntime.InferenceSession(str(tmp_path / "model.onnx"))
    (found,) = session.run(None, {name: value.numpy() for name, value in batch.items()})
    with torch.no_grad():
        torch.testing.assert_close(torch.from_numpy(found), model(**batch), rtol=1e-3, atol=1e-4)
    with pytest.raises(BermoError, match="is not overwritten"):
        bermo.export_module(model, batch, tmp_path / "model.onnx")


def test_what_does_not_fit_is_a_sentence() -> None:
    model = make()
    encoder = model.token_rep.encoder
    with pytest.raises(BermoError, match=r'no part "bert". Encoders are at: token_rep.encoder'):
        bermo.replace_encoder_(model, "bert", encoder)
    config = make_config("bert")
    config.hidden_size *= 2
    with pytest.raises(BermoError, match="Cut the encoder that is there: its width stays"):
        bermo.replace_encoder_(model, "token_rep.encoder", AutoModel.from_config(config))
    with pytest.raises(BermoError, match="heads must be a share over 0"):
        bermo.cut_encoder(encoder, heads=0)
    with pytest.raises(BermoError, match="was cut already"):
        bermo.cut_encoder(bermo.cut_encoder(encoder, heads=0.5), neurons=0.5)
    with pytest.raises(BermoError, match="rising numbers from 1 to 3"):
        bermo.cut_encoder(encoder, layers=(3, 1))
    with pytest.raises(BermoError, match="There are no batches"):
        bermo.teach_(model, model, [])
