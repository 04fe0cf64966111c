"""A BERT written in RoBERTa's shape gives the same vectors."""

from pathlib import Path

import torch

import bermo
from benchmarks.as_roberta import as_roberta
from bermo.encoders.backbone import load_encoder, load_tokenizer


def test_roberta_s_shape_gives_bert_s_vectors(tmp_path: Path) -> None:
    box = Path(bermo.__file__).parent / "box"
    as_roberta(box, tmp_path / "roberta")
    texts = ["a good film about the war", "it is bad"]
    vectors = []
    for folder in (box, tmp_path / "roberta"):
        inputs = load_tokenizer(folder)(texts, padding=True, return_tensors="pt")
        with torch.no_grad():
            found = load_encoder(folder).encoder.eval()(**inputs).last_hidden_state
        vectors.append(found[inputs["attention_mask"].bool()])
    assert "token_type_ids" not in inputs
    torch.testing.assert_close(*vectors)
