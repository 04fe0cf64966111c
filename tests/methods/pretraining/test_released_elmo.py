"""Weights in the form of the released ELMo give, layer by layer, what a slow version in numpy gives."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModel, AutoTokenizer

import bermo
from bermo.errors import BermoError
from bermo.methods.pretraining import released_elmo
from bermo.methods.pretraining.released_elmo import CELL

OPTIONS: dict[str, Any] = {
    "lstm": {
        "use_skip_connections": True,
        "projection_dim": 4,
        "cell_clip": 0.3,
        "proj_clip": 0.4,
        "dim": 6,
        "n_layers": 2,
    },
    "char_cnn": {
        "activation": "relu",
        "filters": [[1, 3], [2, 4], [3, 5]],
        "n_highway": 2,
        "embedding": {"dim": 7},
        "n_characters": 262,
        "max_characters_per_token": 9,
    },
}
WORDS = ["Zoë", "saw", "an", "extraordinarily", "big", "ßubtle", "cat", "."]


def make_arrays() -> dict[str, np.ndarray]:
    lstm, cnn = OPTIONS["lstm"], OPTIONS["char_cnn"]
    size, cells, dim = lstm["projection_dim"], lstm["dim"], cnn["embedding"]["dim"]
    total = sum(count for _, count in cnn["filters"])
    shapes: dict[str, tuple[int, ...]] = {"char_embed": (261, dim)}
    for index, (width, count) in enumerate(cnn["filters"]):
        shapes |= {f"CNN/W_cnn_{index}": (1, width, dim, count), f"CNN/b_cnn_{index}": (count,)}
    for index in range(2):
        for name in ("transform", "carry"):
            shapes |= {f"CNN_high_{index}/W_{name}": (total, total), f"CNN_high_{index}/b_{name}": (total,)}
    shapes |= {"CNN_proj/W_proj": (total, size), "CNN_proj/b_proj": (size,)}
    for way in range(2):
        for layer in range(2):
            for name, shape in {
                "W_0": (2 * size, 4 * cells),
                "B": (4 * cells,),
                "W_P_0": (cells, size),
            }.items():
                shapes[CELL.format(way=way, layer=layer, name=name)] = shape
    draw = np.random.default_rng(0)
    return {name: draw.normal(0, 0.6, shape).astype(np.float32) for name, shape in shapes.items()}


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def characters_of(word: str | None, mark: int = 0) -> list[int]:
    inner = [mark] if word is None else list(word.encode())[:7]
    spelled = [258, *inner, 259]
    return spelled + [260] * (9 - len(spelled))


def slow_word(a: dict[str, np.ndarray], characters: list[int]) -> np.ndarray:
    vectors = a["char_embed"][characters]
    found = []
    for index, (width, count) in enumerate(OPTIONS["char_cnn"]["filters"]):
        best = np.full(count, -np.inf)
        for start in range(9 - width + 1):
            best = np.maximum(
                best, np.einsum("wd,wdn->n", vectors[start : start + width], a[f"CNN/W_cnn_{index}"][0])
            )
        found.append(np.maximum(best + a[f"CNN/b_cnn_{index}"], 0))
    x = np.concatenate(found)
    for index in range(2):
        part = f"CNN_high_{index}"
        gate = sigmoid(x @ a[f"{part}/W_carry"] + a[f"{part}/b_carry"])
        x = gate * np.maximum(x @ a[f"{part}/W_transform"] + a[f"{part}/b_transform"], 0) + (1 - gate) * x
    return x @ a["CNN_proj/W_proj"] + a["CNN_proj/b_proj"]


def slow_lstm(a: dict[str, np.ndarray], way: int, layer: int, sequence: list[np.ndarray]) -> list[np.ndarray]:
    weight, bias, out = (a[CELL.format(way=way, layer=layer, name=name)] for name in ("W_0", "B", "W_P_0"))
    cell, hidden, made = np.zeros(6), np.zeros(4), []
    for x in sequence:
        i, j, f, o = np.split(np.concatenate([x, hidden]) @ weight + bias, 4)
        cell = np.clip(sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j), -0.3, 0.3)
        hidden = np.clip((sigmoid(o) * np.tanh(cell)) @ out, -0.4, 0.4)
        made.append(hidden)
    return made


def slow_layers(a: dict[str, np.ndarray]) -> list[np.ndarray]:
    spelled = [characters_of(None, 256), *map(characters_of, WORDS), characters_of(None, 257)]
    below = [slow_word(a, one) for one in spelled]
    layers = [np.stack([np.concatenate([x, x]) for x in below])]
    ways = [below, below[::-1]]
    for layer in range(2):
        made = [slow_lstm(a, way, layer, ways[way]) for way in range(2)]
        if layer:
            made = [[m + x for m, x in zip(made[way], ways[way], strict=True)] for way in range(2)]
        ways = made
        pairs = zip(made[0], made[1][::-1], strict=True)
        layers.append(np.stack([np.concatenate(pair) for pair in pairs]))
    return layers


def write_options(folder: Path, **changed: Any) -> Path:
    path = folder / "options.json"
    path.write_text(json.dumps({**OPTIONS, **changed}))
    return path


def import_arrays(
    folder: Path, arrays: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch, **more: Any
) -> Any:
    """Import without HDF5, for which h5py is needed."""
    monkeypatch.setattr(released_elmo, "read_arrays", lambda path: arrays)
    return bermo.import_elmo(write_options(folder), folder / "weights.hdf5", folder / "elmo", **more)


@pytest.mark.parametrize("listed", [False, True])
def test_layers_are_those_of_a_slow_version_whatever_pieces_words_are_cut_into(
    listed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arrays = make_arrays()
    (tmp_path / "words.txt").write_text("saw\ncat\nextraordinarily\nbi", encoding="utf-8")
    import_arrays(tmp_path, arrays, monkeypatch, words=tmp_path / "words.txt" if listed else None)
    tokenizer, model = (kind.from_pretrained(tmp_path / "elmo") for kind in (AutoTokenizer, AutoModel))
    inputs = tokenizer(WORDS, is_split_into_words=True, return_tensors="pt")
    starts = [
        0,
        *(inputs.word_to_tokens(0, word).start for word in range(len(WORDS))),
        len(inputs.tokens()) - 1,
    ]
    assert ("saw" in inputs.tokens()) == listed
    with torch.no_grad():
        layers = model(**{k: inputs[k] for k in ("input_ids", "attention_mask")}, output_hidden_states=True)
    for made, expected in zip(layers.hidden_states, slow_layers(arrays), strict=True):
        np.testing.assert_allclose(made[0, starts], expected, rtol=1e-4, atol=1e-5)


def test_an_hdf5_file_gives_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hdf5 = pytest.importorskip("h5py")
    arrays = make_arrays()
    with hdf5.File(tmp_path / "weights.hdf5", "w") as file:
        for name, array in arrays.items():
            file[name] = array
    read = released_elmo.read_arrays(tmp_path / "weights.hdf5")
    assert read.keys() == arrays.keys()
    assert all(np.array_equal(read[name], arrays[name]) for name in arrays)


def test_what_does_not_fit_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    arrays = make_arrays()
    lost = {name: array for name, array in arrays.items() if name != "CNN_proj/W_proj"}
    with pytest.raises(BermoError, match="lack CNN_proj/W_proj"):
        import_arrays(tmp_path, lost, monkeypatch)
    with pytest.raises(BermoError, match=r"char_embed has the shape \(3, 7\), but by the options"):
        import_arrays(tmp_path, {**arrays, "char_embed": arrays["char_embed"][:3]}, monkeypatch)
    path = write_options(tmp_path, char_cnn={**OPTIONS["char_cnn"], "activation": "tanh"})
    with pytest.raises(BermoError, match='the activation "tanh"'):
        bermo.import_elmo(path, tmp_path / "weights.hdf5", tmp_path / "elmo")
    assert not (tmp_path / "elmo").exists()


def test_a_missing_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Any:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(released_elmo.importlib, "import_module", nothing)
    with pytest.raises(BermoError, match=r'pip install "bermo\[elmo\]"'):
        released_elmo.read_arrays(tmp_path / "weights.hdf5")
