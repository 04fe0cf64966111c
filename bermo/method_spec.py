"""Methods of the field beside pruning and a teacher, each an option of a training; None leaves it out."""

from dataclasses import dataclass
from typing import Literal

from bermo.fields import Rules, option


def whole_rank(name: str, amount: float | None) -> tuple[bool, str]:
    """A rank is a whole number; a share is under 1."""
    is_right = amount is None or amount < 1 or amount == int(amount)
    return (is_right, f"{name} must be a whole number, or a share under 1, but got {amount}.")


MixPath = Literal["opens", "closes"]


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """What else is done to a model while it is trained (docs/how-to/methods.md)."""

    quantize: Literal["int8", "ternary", "binary"] | None = option(
        None,
        "train with the numbers that the int8 graph of bermo export computes with, or with weights of three"
        " or two values",
    )
    quantize_from: float | None = option(
        None, "share of the steps before weights are quantised", shown="two thirds", least=0, under=1
    )
    theseus: int | None = option(
        None, "so many layers learn to replace groups of the teacher's, more and more often", least=1
    )
    tie_layers: int | None = option(
        None,
        "layers share their weights in so many groups of neighbours; a group starts as its mean",
        least=1,
    )
    low_rank: float | None = option(
        None,
        "the layers' matrices become two factors of this rank, or of this share of their numbers if under 1",
        over=0,
    )
    embedding_rank: float | None = option(
        None,
        "the table of words becomes two factors, so many numbers a word and one matrix; a share if under 1",
        over=0,
    )
    keep_tokens: float | None = option(
        None,
        "layers learn which share of the tokens they need; this is the share kept in the mean over layers",
        over=0,
        under=1,
    )
    mix_path: MixPath | None = option(
        None,
        "layers enter the mix from the top downwards in the first half of training, or leave it in the"
        " second, so that a plain encoder is saved",
    )
    mixout: float | None = option(
        None,
        "chance that a weight is, for a step, the one that training started from",
        over=0,
        under=1,
    )
    rdrop: float | None = option(
        None, "weight of the distance between answers of two passes with different dropout", over=0
    )
    adversarial: Literal["smart", "freelb"] | None = option(
        None, "train on small changes of the words' vectors that hurt most"
    )
    lora: int | None = option(
        None, "freeze the encoder and train updates of this rank on its layers' matrices", least=1
    )
    lora_lr: float | None = option(None, "learning rate of these updates", shown="ten times --lr", over=0)

    @property
    def has_passes(self) -> bool:
        """Whether a step runs the model several times."""
        return self.rdrop is not None or self.adversarial is not None

    @property
    def has_factors(self) -> bool:
        """Whether matrices are replaced by factors of low rank."""
        return self.low_rank is not None or self.embedding_rank is not None

    def rules(self) -> Rules:
        return [
            whole_rank("low-rank", self.low_rank),
            whole_rank("embedding-rank", self.embedding_rank),
            (
                self.quantize_from is None or self.quantize is not None,
                "--quantize-from belongs to --quantize. Add --quantize int8, or leave it out.",
            ),
            (
                self.lora_lr is None or self.lora is not None,
                "--lora-lr is the rate of --lora. Add --lora, or leave it out.",
            ),
            (
                self.rdrop is None or self.adversarial is None,
                "--rdrop and --adversarial each say which passes a step has. Leave one out.",
            ),
        ]
