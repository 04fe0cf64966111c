"""Text becomes the same ids whether its documents are read whole or in fragments."""

from pathlib import Path

import numpy as np
import pytest

from bermo.data.pretrain import corpus, documents, writing
from bermo.data.pretrain.encoding import in_processes
from bermo.data.sentences import generate
from bermo.pretrain_spec import TextSpec


def test_ids_do_not_depend_on_how_much_is_held_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = [item.text for item in generate("tense", 300, seed=1)]
    blocks = ["\n".join(lines[k : k + size]) for k, size in ((0, 3), (3, 200), (203, 1), (204, 96))]
    path = tmp_path / "text.txt"
    path.write_text("\n\n".join(blocks * 3), encoding="utf-8")

    def load(name: str) -> corpus.Corpus:
        spec = TextSpec(
            files=(str(path),), vocabulary=500, length=32, held_out=0.25, cache=str(tmp_path / name)
        )
        return corpus.load_corpus(spec, 64, lambda sentence: None)

    whole = load("whole")
    monkeypatch.setattr(documents, "LONGEST_FRAGMENT", 500)
    monkeypatch.setattr(corpus, "CHUNK", 900)
    monkeypatch.setattr(writing, "ENCODED", 900)
    monkeypatch.setattr(corpus, "SMALL", 10**9)
    monkeypatch.setattr(writing, "FEW", 10**9)
    parts = load("parts")
    assert whole.train.num_documents == 9
    assert whole.tokenizer.get_vocab() == parts.tokenizer.get_vocab()
    for one, other in ((whole.train, parts.train), (whole.held, parts.held)):
        assert np.array_equal(one.ids, other.ids)
        assert np.array_equal(one.starts, other.starts)


def test_few_parts_stay_in_this_process_and_in_their_order() -> None:
    assert list(in_processes(len, ["a", "bcd", "", "ef"], least=5)) == [1, 3, 0, 2]
