"""What cannot be learned where tokens are left out from layer to layer (--keep-tokens), refused before torch
is imported, and what cannot be learned from a model that leaves them out.
"""

from typing import Any

from bermo.data.tasks import Kind
from bermo.errors import BermoError
from bermo.spec import RunSpec

KINDS: tuple[Kind, ...] = ("classification", "multi-label", "regression", "choice", "reranker")


def check_kept_tokens(spec: RunSpec) -> None:
    """Refuse what a model that leaves tokens out cannot learn from."""
    if spec.method.keep_tokens is None:
        return
    check_fewer_tokens(spec, "--keep-tokens")
    if spec.train.contrast:
        raise BermoError("--keep-tokens leaves tokens out that --contrast reads. Leave one out.")
    if spec.data.task in ("own/embedding", "own/tagging"):
        raise BermoError("--keep-tokens is for tasks with one answer a text. Leave it out.")


def check_fewer_tokens(spec: RunSpec, who: str) -> None:
    """Refuse what reads the tokens that an option or a model leaves out."""
    others = {
        f"--distill-as {spec.distill.named}": spec.distill.named is not None and spec.distill.has_inner,
        "--distill-hidden": spec.distill.hidden > 0,
        "--distill-relations": spec.distill.relations > 0,
        "--distill-cosine": spec.distill.cosine > 0,
        "--distill-patient": spec.distill.patient > 0,
        "--distill-attention": spec.distill.attention > 0,
        "--distill-last-attention": spec.distill.last_attention > 0,
        "--theseus": spec.method.theseus is not None,
        "--adversarial": spec.method.adversarial is not None,
    }
    for flag, is_set in others.items():
        if is_set:
            raise BermoError(f"{who} leaves tokens out that {flag} reads. Leave one out.")


def check_kind(kind: Kind, who: str = "--keep-tokens") -> None:
    """Refuse a task that needs every token to the end."""
    if kind not in KINDS:
        raise BermoError(
            f"{who} leaves tokens out, but {kind} needs every token to the end. It is for tasks with"
            f" one answer a text: {', '.join(KINDS)}."
        )


def check_model(spec: RunSpec, kind: Kind, name: str, is_read: bool) -> None:
    """Refuse what needs tokens that an encoder or a teacher leaves out; `is_read`: the head reads it."""
    check_fewer_tokens(spec, name)
    check_kind(kind, name)
    if is_read and spec.model.pooling not in (None, "first"):
        raise BermoError(
            f"{name} leaves tokens out, of which only the first is sure, so the head must read that one, but"
            f" got --pooling {spec.model.pooling}. Leave it out."
        )


def has_fewer_tokens(config: Any) -> bool:
    """Tell by its config whether a model hands on fewer tokens from layer to layer."""
    return getattr(config, "kept_tokens", None) is not None
