"""A small text, a small pretraining of it, and a teacher that reads it in other tokens."""

from pathlib import Path
from typing import Any

import torch
from transformers import BertConfig, BertModel

from bermo.data.pretrain.vocabulary import count_words, make_tokenizer, make_vocabulary
from bermo.data.sentences import generate
from bermo.pace_spec import PaceSpec
from bermo.pretrain_spec import PretrainSpec, ShapeSpec, TextSpec


def write_documents(folder: Path) -> str:
    """Write documents of ten sentences each, and return the file's name."""
    lines = [item.text for item in generate("tense", 1500, seed=1)]
    documents = ["\n".join(lines[k : k + 10]) for k in range(0, len(lines), 10)]
    (folder / "text.txt").write_text("\n\n".join(documents))
    return str(folder / "text.txt")


def make_spec(text: str, folder: Path, **pace: Any) -> PretrainSpec:
    return PretrainSpec(
        text=TextSpec(files=(text,), vocabulary=600, length=32, held_out=0.1, cache=str(folder)),
        shape=ShapeSpec(preset="tiny", width=32, heads=2, positions=64),
        pace=PaceSpec(**({"steps": 6, "batch_size": 8, "device": "cpu", "evaluations": 2} | pace)),
    )


def write_teacher(text: str, folder: Path) -> str:
    """Write an encoder of three layers with another vocabulary than the student's, and return its folder."""
    torch.manual_seed(0)
    words = make_vocabulary(count_words([Path(text).read_text()]), 420)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=2,
        intermediate_size=48,
        max_position_embeddings=64,
        initializer_range=0.3,
    )
    BertModel(config).save_pretrained(folder)
    make_tokenizer(words, 64).save_pretrained(folder)
    return str(folder)
