"""The released ELMo weights as an ordinary folder: HDF5 and JSON options in, safetensors and tokenizer out.

    char_embed                         (261, 16)         characters
    CNN/W_cnn_i, b_cnn_i               (1, width, 16, n) filters
    CNN_high_j/W_transform, W_carry    (n, n)            highways, with b_transform and b_carry
    CNN_proj/W_proj, b_proj            (n, P)            projection
    RNN_d/RNN/MultiRNNCell/Cell<l>/LSTMCell/W_0, B, W_P_0
                                       (2P, 4H), (4H), (H, P): gates i, j, f, o, and 1 is added to f

The files hold no tokenizer, since ELMo reads any word by its characters. The one that is made keeps capitals
and has a piece for each common character; with a list of words these are one piece each, and rows are short.
"""

import importlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerFast

from bermo.data.pretrain.spelled import spell
from bermo.data.pretrain.vocabulary import CHARACTERS, SPECIALS, make_tokenizer
from bermo.data.text import read_text
from bermo.encoders.capitals import keep_case_
from bermo.encoders.card import with_header
from bermo.encoders.elmo import ElmoConfig, ElmoModel
from bermo.encoders.trust import check_finite
from bermo.errors import BermoError
from bermo.files import reading, whole_folder, write_text
from bermo.sums import write_sums

Arrays = Mapping[str, np.ndarray]
LETTERS = (range(0x21, 0x250), range(0x370, 0x400), range(0x400, 0x460))
"""Latin with its accents, Greek and Cyrillic."""
ANEW = "Take both files of one released model anew."
CELL = "RNN_{way}/RNN/MultiRNNCell/Cell{layer}/LSTMCell/{name}"


def import_elmo(
    options: str | Path, weights: str | Path, folder: str | Path, words: str | Path | None = None
) -> ElmoModel:
    """Write a released ELMo (its JSON options and HDF5 weights) as a folder that every verb takes.

    `words` is a file of words that get a piece each, so that rows have fewer tokens; no vector changes by it.
    """
    tokenizer = make_letters(() if words is None else read_text(Path(words)).split())
    config = read_options(Path(options), len(tokenizer))
    model = ElmoModel(config)
    spelled = spell(tokenizer)
    model.spelling.set_(spelled.pieces, spelled.kinds)
    with reading(Path(weights), ANEW):
        load_arrays_(model, read_arrays(Path(weights)))
    check_finite(weights, model)
    with whole_folder(Path(folder)) as temporary:
        model.save_pretrained(temporary)
        tokenizer.save_pretrained(temporary)
        write_text(temporary / "README.md", with_header(_card(config), title="ELMo"))
        write_sums(temporary)
    return model.eval()


def make_letters(words: tuple[str, ...] | list[str]) -> PreTrainedTokenizerFast:
    """Build a cased tokenizer of single characters, alone and inside words, and of the words given."""
    letters = [chr(code) for codes in LETTERS for code in codes if chr(code).isprintable()]
    letters = [letter for letter in dict.fromkeys([*CHARACTERS, *letters]) if not letter.isspace()]
    pieces = dict.fromkeys([*SPECIALS, *letters, *(f"##{letter}" for letter in letters), *words])
    tokenizer = make_tokenizer({piece: index for index, piece in enumerate(pieces)}, 512)
    keep_case_(tokenizer)
    return tokenizer


def read_options(path: Path, vocabulary: int) -> ElmoConfig:
    """Read the sizes of a released model."""
    with reading(path, ANEW):
        values: Any = json.loads(read_text(path))
        lstm, characters = values["lstm"], values["char_cnn"]
        if characters.get("activation", "relu") != "relu":
            raise BermoError(
                f'{path} names the activation "{characters["activation"]}", but the released models have'
                " relu. Take one of those."
            )
        return ElmoConfig(
            vocab_size=vocabulary,
            filters=characters["filters"],
            character_size=characters["embedding"]["dim"],
            max_characters=characters["max_characters_per_token"],
            num_highways=characters["n_highway"],
            cells=lstm["dim"],
            projection_size=lstm["projection_dim"],
            num_hidden_layers=lstm["n_layers"],
            cell_clip=lstm["cell_clip"],
            projection_clip=lstm["proj_clip"],
            skips=lstm["use_skip_connections"],
            dropout=values.get("dropout", 0.1),
        )


def read_arrays(path: Path) -> dict[str, np.ndarray]:
    """Read all arrays of an HDF5 file, by their paths in it."""
    try:
        hdf5 = importlib.import_module("h5py")
    except ModuleNotFoundError as error:
        raise BermoError(
            f'{path} is read by h5py, which is not installed: pip install "bermo[elmo]".'
        ) from error
    arrays: dict[str, np.ndarray] = {}

    def take(name: str, item: Any) -> None:
        if isinstance(item, hdf5.Dataset):
            arrays[name] = np.asarray(item[...], dtype=np.float32)

    with hdf5.File(path, "r") as file:
        file.visititems(take)
    return arrays


@torch.no_grad()
def load_arrays_(model: ElmoModel, arrays: Arrays) -> None:
    """Write the arrays of a released model into ours, in place; a missing or wrong one is an error."""
    words, size = model.words, model.config.projection_size

    def put(target: Tensor, name: str, *, turn: tuple[int, ...] | None = None) -> None:
        if name not in arrays:
            raise BermoError(f"The weights lack {name}. {ANEW}")
        array = arrays[name] if turn is None else arrays[name].transpose(turn)
        if array.shape != tuple(target.shape):
            raise BermoError(
                f"{name} has the shape {array.shape}, but by the options it is {tuple(target.shape)}. {ANEW}"
            )
        target.copy_(torch.from_numpy(array.copy()))

    put(words.embedding.weight, "char_embed")
    kind: Any
    for index, kind in enumerate(words.filters):
        # (1, width, size, count) -> (count, size, width, 1)
        put(kind.weight[..., None], f"CNN/W_cnn_{index}", turn=(3, 2, 1, 0))
        put(kind.bias, f"CNN/b_cnn_{index}")
    highway: Any
    for index, highway in enumerate(words.highways):
        for half, name in enumerate(("transform", "carry")):
            put(highway.weight.chunk(2, dim=1)[half], f"CNN_high_{index}/W_{name}")
            put(highway.bias.chunk(2)[half], f"CNN_high_{index}/b_{name}")
    put(words.projection.weight, "CNN_proj/W_proj", turn=(1, 0))
    put(words.projection.bias, "CNN_proj/b_proj")
    both: Any
    for number, both in enumerate(model.layers):
        for way in range(2):
            names = {name: CELL.format(way=way, layer=number, name=name) for name in ("W_0", "B", "W_P_0")}
            matrix = torch.cat([both.input[way], both.recurrent[way]])
            put(matrix, names["W_0"])
            both.input[way], both.recurrent[way] = matrix[:size], matrix[size:]
            put(both.bias[way], names["B"])
            both.bias[way].unflatten(0, (4, -1))[2] += 1.0
            put(both.projection[way], names["W_P_0"])


def _card(config: ElmoConfig) -> str:
    return (
        f"# ELMo, {config.num_hidden_layers} layers of {config.cells:,} cells, projected to"
        f" {config.projection_size} each way\n\nThe weights of a released model (Peters et al. 2018), read"
        " from their HDF5 file. Rows start from empty cells. `import bermo` registers the model with the Auto"
        " classes.\n"
    )
