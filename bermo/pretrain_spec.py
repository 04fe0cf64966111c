"""What a pretraining is: text and vocabulary, the encoder's shape, the objective, the steps; no torch here.

    PretrainSpec = TextSpec (files, vocabulary) + ShapeSpec (layers, width, inner mix) + ObjectiveSpec (masks, pairs)
                 + PaceSpec (steps, rates) + seed

A preset is a shape by name; layers, width, heads and intermediate replace single sizes of it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bermo.errors import BermoError
from bermo.spec import Precision, Tracker, option

ObjectiveKind = Literal["mlm", "mlm+nsp", "mlm+sop", "electra"]
Masking = Literal["token", "word", "span"]
InnerKind = Literal["none", "within", "raw"]
Preset = Literal["tiny", "mini", "small", "medium", "base", "box"]


DEFAULT_STEPS = 10_000  # those of the encoder in the box


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """The numbers that make an encoder's shape."""

    layers: int
    width: int
    heads: int
    intermediate: int


# tiny to base are the shapes of "Well-Read Students Learn Better" (Turc et al. 2019); box is ours.
PRESETS: Mapping[str, Sizes] = {
    "tiny": Sizes(layers=2, width=128, heads=2, intermediate=512),
    "mini": Sizes(layers=4, width=256, heads=4, intermediate=1024),
    "small": Sizes(layers=4, width=512, heads=8, intermediate=2048),
    "medium": Sizes(layers=8, width=512, heads=8, intermediate=2048),
    "base": Sizes(layers=12, width=768, heads=12, intermediate=3072),
    "box": Sizes(layers=6, width=224, heads=7, intermediate=896),
}


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """What is read, and the pieces it is read in."""

    files: tuple[str, ...] = option((), "text files: .txt .xz .gz, documents apart by blank lines", "text")
    vocabulary: int = option(8192, "pieces of the vocabulary that is made from the text")
    words: str | None = option(None, "a file of words that each get a piece of their own")
    tokenizer: str | None = option(None, "take this model's tokenizer instead of making one")
    held_out: float = option(0.005, "share of the documents that is kept for scoring")
    length: int = option(128, "tokens a row, special ones included")
    limit: int | None = option(None, "read only the first so many documents")
    cache: str | None = option(None, "folder of the token cache; default: the user's cache folder")


@dataclass(frozen=True, kw_only=True)
class ShapeSpec:
    """The encoder: a preset, single sizes of its own, and the mix inside."""

    preset: Preset = option("small", "a shape by name", "config")
    layers: int | None = option(None, "layers, if not the preset's")
    width: int | None = option(None, "hidden units, if not the preset's")
    heads: int | None = option(None, "attention heads, if not the preset's")
    intermediate: int | None = option(None, "units inside a layer, if not the preset's")
    positions: int = option(512, "longest text that the encoder can ever read")
    dropout: float = option(0.0, "dropout while pretraining")
    later_dropout: float = option(0.1, "dropout that the saved encoder is fine-tuned with")
    inner_mix: InnerKind = option(
        "none", "what each layer reads: the one below, or a learned mix of all below"
    )

    @property
    def sizes(self) -> Sizes:
        """The preset with the sizes that were given."""
        preset = PRESETS[self.preset]
        width = self.width or preset.width
        return Sizes(
            layers=self.layers or preset.layers,
            width=width,
            heads=self.heads or max(1, width * preset.heads // preset.width),
            intermediate=self.intermediate or width * preset.intermediate // preset.width,
        )


@dataclass(frozen=True, kw_only=True)
class ObjectiveSpec:
    """What is guessed."""

    kind: ObjectiveKind = option("mlm", "what is learned from the text", "objective")
    masking: Masking = option("token", "what is masked as one thing")
    share: float = option(0.15, "share of the tokens that is masked", "mask-share")


@dataclass(frozen=True, kw_only=True)
class PaceSpec:
    """How long, how fast, and how often we look."""

    steps: int | None = option(None, f"steps of the optimiser [{DEFAULT_STEPS}, without --minutes]")
    minutes: float | None = option(
        None, "instead of steps: as many as fit into so many minutes, by a short trial"
    )
    batch_size: int = option(256, "rows a step, over all processes and accumulation together")
    accumulation: int = option(1, "split each batch into so many forward passes")
    lr: float = option(1e-3, "peak learning rate")
    mix_lr: float = option(1e-2, "learning rate of the inner mix")
    weight_decay: float = option(0.01, "decay of all weights but biases, norms and the mix")
    warmup: float = option(0.06, "share of the steps in which the rate rises from zero")
    clip: float = option(1.0, "largest gradient norm; 0 = no clipping")
    precision: Precision = option("fp32", "arithmetic of the forward pass")
    device: Literal["auto", "cpu"] = option("auto", "auto takes a GPU where there is one")
    looks: int = option(10, "how often the held-out text is scored; at least once in each pass over the text")
    checkpoint_minutes: float = option(5.0, "save the state of the run every so many minutes")
    tracker: Tracker = option("none", "also log to this tracker")


@dataclass(frozen=True, kw_only=True)
class PretrainSpec:
    """One encoder made from text."""

    text: TextSpec = TextSpec()
    shape: ShapeSpec = ShapeSpec()
    objective: ObjectiveSpec = ObjectiveSpec()
    pace: PaceSpec = PaceSpec()
    seed: int = option(1, "decides the first weights, the order and the masks")
    half: bool = option(False, "save the encoder's weights in fp16, at half the size")


def check_pretrain(spec: PretrainSpec) -> PretrainSpec:
    """Refuse a spec that cannot work, before any file is read; return it unchanged."""
    text, shape, pace, sizes = spec.text, spec.shape, spec.pace, spec.shape.sizes
    missing = [file for file in text.files if not Path(file).expanduser().is_file()]
    rules = [
        (bool(text.files), "There is nothing to read. Name one text file or more with --text."),
        (not missing, f"There is no file {', '.join(missing)}. Pass .txt, .xz or .gz files with --text."),
        (
            pace.steps is None or pace.minutes is None,
            "Give either --steps or --minutes: how long is it to train?",
        ),
        (
            text.words is None or Path(text.words).expanduser().is_file(),
            f"There is no file {text.words}. Pass a list of words, one a line, with --words.",
        ),
        (pace.steps is None or pace.steps >= 1, f"steps must be at least 1, but got {pace.steps}."),
        (pace.minutes is None or pace.minutes > 0, f"minutes must be over 0, but got {pace.minutes}."),
        (
            text.words is None or text.tokenizer is None,
            "--words is for a vocabulary of our own. Leave out --words or --tokenizer.",
        ),
        (text.vocabulary >= 300, f"vocabulary must be at least 300 pieces, but got {text.vocabulary}."),
        (0 < text.held_out < 0.5, f"held-out must lie between 0 and 0.5, but got {text.held_out}."),
        (
            16 <= text.length <= shape.positions,
            f"length must lie between 16 and positions ({shape.positions}), but got {text.length}.",
        ),
        (
            sizes.width % sizes.heads == 0,
            f"width must be a multiple of heads, but got {sizes.width} and {sizes.heads}.",
        ),
        (
            sizes.layers >= 1 and sizes.width >= 8,
            f"an encoder needs a layer and 8 units, but got {sizes.layers} and {sizes.width}.",
        ),
        (
            0 < spec.objective.share < 1,
            f"mask-share must lie between 0 and 1, but got {spec.objective.share}.",
        ),
        (
            0 <= shape.dropout < 1 and 0 <= shape.later_dropout < 1,
            f"dropout must lie in [0, 1), but got {shape.dropout} and {shape.later_dropout}.",
        ),
        (pace.batch_size >= 1 and pace.accumulation >= 1, "batch-size and accumulation must be at least 1."),
        (pace.looks >= 1, f"looks must be at least 1, but got {pace.looks}."),
    ]
    for holds, sentence in rules:
        if not holds:
            raise BermoError(sentence)
    return spec
