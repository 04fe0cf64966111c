"""Tokenizers of uncased vocabularies that are made to keep capitals, as the paper probably had them."""

import json

from tokenizers import Tokenizer
from transformers import PreTrainedTokenizerBase


def keep_case_(tokenizer: PreTrainedTokenizerBase) -> None:
    """Take the lower-casing out of a fast tokenizer; accents, which go with it, stay too."""
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    parts = content["normalizer"] or {}
    kept = [p for p in parts.get("normalizers", [parts]) if p and p["type"] != "Lowercase"]
    for part in kept:
        if part["type"] == "BertNormalizer":
            part.update(lowercase=False, strip_accents=False)
    content["normalizer"] = {"type": "Sequence", "normalizers": kept}
    changed = Tokenizer.from_str(json.dumps(content)).normalizer
    tokenizer.backend_tokenizer.normalizer = changed
    # BertTokenizer builds its normaliser anew from these when it is loaded again.
    for name in ("do_lower_case", "strip_accents"):
        if hasattr(tokenizer, name):
            setattr(tokenizer, name, False)
