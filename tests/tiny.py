"""Tiny random encoders, tokenizers and batches of every family, built on the spot: no network, no files."""

import importlib
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.normalizers import Lowercase
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from transformers import (
    AlbertConfig,
    AutoModel,
    BertConfig,
    CamembertConfig,
    DebertaConfig,
    DebertaV2Config,
    DistilBertConfig,
    ElectraConfig,
    ErnieConfig,
    GPT2Config,
    MobileBertConfig,
    ModernBertConfig,
    MPNetConfig,
    PretrainedConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
    XLMRobertaConfig,
    XLNetConfig,
)

from bermo.encoders.elmo import ElmoConfig

# DeBERTa's files call torch.jit.script when imported, which newer torch deprecates.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    for name in ("deberta", "deberta_v2"):
        importlib.import_module(f"transformers.models.{name}.modeling_{name}")

VOCABULARY = 60
SPECIAL = ("<pad>", "<unk>", "<cls>", "<sep>", "<mask>")
WORDS = (
    "the",
    "a",
    "cat",
    "cats",
    "dog",
    "dogs",
    "sees",
    "saw",
    "good",
    "bad",
    "film",
    "films",
    ".",
)
SIZES = {
    "vocab_size": VOCABULARY,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    # Wide enough for random layers to differ from each other and from their input.
    "initializer_range": 0.3,
}
ROBERTA = {**SIZES, "type_vocab_size": 1, "bos_token_id": 2, "eos_token_id": 3}

CONFIGS: Mapping[str, Callable[[], PretrainedConfig]] = {
    "bert": lambda: BertConfig(**SIZES),
    "roberta": lambda: RobertaConfig(**ROBERTA),
    "xlm-roberta": lambda: XLMRobertaConfig(**ROBERTA),
    "camembert": lambda: CamembertConfig(**ROBERTA),
    "ernie": lambda: ErnieConfig(**SIZES),
    "distilbert": lambda: DistilBertConfig(
        vocab_size=VOCABULARY,
        dim=16,
        n_layers=3,
        n_heads=2,
        hidden_dim=24,
        initializer_range=0.3,
        max_position_embeddings=64,
    ),
    "albert": lambda: AlbertConfig(**SIZES, embedding_size=8, num_hidden_groups=1, inner_group_num=1),
    "electra": lambda: ElectraConfig(**SIZES, embedding_size=8),
    "mpnet": lambda: MPNetConfig(**{**SIZES, "pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3}),
    "deberta": lambda: DebertaConfig(
        **SIZES, relative_attention=True, pos_att_type=["c2p", "p2c"], type_vocab_size=0
    ),
    "deberta-v2": lambda: DebertaV2Config(
        **SIZES,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        conv_kernel_size=3,
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        type_vocab_size=0,
    ),
    "modernbert": lambda: ModernBertConfig(
        **SIZES,
        local_attention=8,
        global_attn_every_n_layers=2,
        cls_token_id=2,
        sep_token_id=3,
        bos_token_id=2,
        eos_token_id=3,
    ),
    "xlnet": lambda: XLNetConfig(
        vocab_size=VOCABULARY,
        d_model=16,
        n_layer=3,
        n_head=2,
        d_inner=24,
        pad_token_id=0,
        bos_token_id=2,
        eos_token_id=3,
        initializer_range=0.3,
    ),
    "mobilebert": lambda: MobileBertConfig(
        **SIZES, embedding_size=8, intra_bottleneck_size=8, num_feedforward_networks=2
    ),
    "gpt2": lambda: GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=16,
        n_layer=3,
        n_head=2,
        n_positions=64,
        initializer_range=0.3,
        bos_token_id=3,
        eos_token_id=3,
    ),
}
# Families without heads and neurons.
RECURRENT: Mapping[str, Callable[[], PretrainedConfig]] = {
    "elmo": lambda: ElmoConfig(
        vocab_size=VOCABULARY,
        filters=((1, 4), (2, 6)),
        character_size=5,
        max_characters=10,
        cells=12,
        projection_size=8,
        num_hidden_layers=3,
    )
}
FAMILIES = tuple(CONFIGS)
ENCODERS = tuple(name for name in FAMILIES if name != "gpt2")


def make_config(family: str) -> PretrainedConfig:
    """Return a tiny config of the family: 3 layers over the embeddings, 16 units wide."""
    return {**CONFIGS, **RECURRENT}[family]()


def make_batch(family: str, texts: int = 3, length: int = 7, seed: int = 0) -> dict[str, Tensor]:
    """Return random ids with padding on the family's side; text k has k padding tokens."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(5, VOCABULARY, (texts, length), generator=generator)
    place = torch.arange(length).expand(texts, length)
    padding = torch.arange(texts)[:, None]
    mask = (place >= padding) if family == "xlnet" else (place < length - padding)
    return {"input_ids": torch.where(mask, ids, 0), "attention_mask": mask.long()}


def make_tokenizer(family: str = "bert") -> PreTrainedTokenizerFast:
    """Return a lower-casing word tokenizer with the family's special tokens and side of padding."""
    words = {word: index for index, word in enumerate((*SPECIAL, *WORDS))}
    tokenizer = Tokenizer(WordLevel(words, unk_token="<unk>"))
    tokenizer.normalizer = Lowercase()
    tokenizer.pre_tokenizer = Whitespace()
    if family == "gpt2":
        return PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, unk_token="<unk>", bos_token="<sep>", eos_token="<sep>"
        )
    single, pair = "<cls> $A <sep>", "<cls> $A <sep> $B:1 <sep>:1"
    if family == "xlnet":
        single, pair = "$A <sep> <cls>:2", "$A <sep> $B:1 <sep>:1 <cls>:2"
    tokenizer.post_processor = TemplateProcessing(
        single=single, pair=pair, special_tokens=[("<cls>", 2), ("<sep>", 3)]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<pad>",
        unk_token="<unk>",
        cls_token="<cls>",
        sep_token="<sep>",
        mask_token="<mask>",
        padding_side="left" if family == "xlnet" else "right",
    )


def save_backbone(family: str, folder: Path) -> Path:
    """Write a whole checkpoint of the family, weights, config and tokenizer, as the hub would give it."""
    AutoModel.from_config(make_config(family)).save_pretrained(folder)
    make_tokenizer(family).save_pretrained(folder)
    return folder
