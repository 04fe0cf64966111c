"""What a pretraining is: text and vocabulary, the encoder's shape, the objective, the steps.

    PretrainSpec = TextSpec (files, vocabulary) + ShapeSpec (layers, width, inner mix) or ElmoSpec
                 + ObjectiveSpec (masks, pairs) + PaceSpec (steps, rates) + seed

A preset is a shape by name; layers, width, heads and intermediate replace single sizes of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

from bermo.elmo_spec import ElmoSpec
from bermo.fields import Rules, group, option
from bermo.pace_spec import PaceSpec
from bermo.spec import LARGEST_SEED

ObjectiveKind = Literal["mlm", "mlm+nsp", "mlm+sop", "electra", "elmo", "structbert", "xlnet"]
Masking = Literal["token", "word", "span", "phrase"]
InnerKind = Literal["none", "within", "raw"]
TaughtLayers = Literal["all", "last"]
Preset = Literal["tiny", "mini", "small", "medium", "base", "box"]


@dataclass(frozen=True, kw_only=True)
class EncoderShape:
    """The numbers that make an encoder's shape."""

    layers: int
    width: int
    heads: int
    intermediate: int


# tiny to base are the shapes of "Well-Read Students Learn Better" (Turc et al. 2019); box is ours.
PRESETS: Mapping[Preset, EncoderShape] = {
    "tiny": EncoderShape(layers=2, width=128, heads=2, intermediate=512),
    "mini": EncoderShape(layers=4, width=256, heads=4, intermediate=1024),
    "small": EncoderShape(layers=4, width=512, heads=8, intermediate=2048),
    "medium": EncoderShape(layers=8, width=512, heads=8, intermediate=2048),
    "base": EncoderShape(layers=12, width=768, heads=12, intermediate=3072),
    "box": EncoderShape(layers=6, width=224, heads=7, intermediate=896),
}


MODEL_BRINGS = (
    "preset",
    "width",
    "heads",
    "intermediate",
    "positions",
    "later_dropout",
    "inner_mix",
)
"""Fields of the shape that an encoder to go on from has decided."""
NOT_ELMO = ("model", "preset", "layers", "width", "heads", "intermediate", "inner_mix")
"""Fields of the shape that only a Transformer has."""
MASKS = ("masking", "share")
"""Fields of the objective that say what is masked."""


@dataclass(frozen=True, kw_only=True)
class TextSpec:
    """What is read, and the pieces it is read in."""

    files: tuple[str, ...] = option(
        (),
        "text files (.txt .xz .gz), documents apart by blank lines, or one a line; tables (.csv .tsv .jsonl"
        " .parquet .xlsx), one a row",
        "text",
        is_list=True,
        metavar="FILE",
    )
    vocabulary: int = option(8192, "pieces of the vocabulary that is made from the text", least=300)
    words: str | None = option(
        None, "a file of words that each get a piece of their own, also beside those of --model"
    )
    tokenizer: str | None = option(None, "take this model's tokenizer instead of making one")
    held_out: float = option(0.005, "share of the documents that is kept for scoring", over=0, under=0.5)
    length: int = option(128, "tokens a row, special ones included")
    short_length: int | None = option(None, "tokens a row of the first --short-steps steps", least=16)
    short_steps: int | None = option(None, "steps of short rows before those of whole ones", least=1)
    limit: int | None = option(None, "read only the first so many documents", least=1)
    cache: str | None = option(None, "folder of the token cache; default: the user's cache folder")


@dataclass(frozen=True, kw_only=True)
class ShapeSpec:
    """The encoder: one to go on from, or a preset, single sizes of its own, and the mix inside."""

    model: str | None = option(
        None, "go on from this encoder, with its shape and tokenizer: a folder, box, a name on the hub"
    )
    preset: Preset = option("small", "a shape by name", "config")
    layers: int | None = option(
        None, "layers, if not the preset's; with --model a multiple of its own, which are stacked", least=1
    )
    width: int | None = option(None, "hidden units, if not the preset's", least=8)
    heads: int | None = option(None, "attention heads, if not the preset's", least=1)
    intermediate: int | None = option(None, "units inside a layer, if not the preset's", least=1)
    positions: int = option(512, "longest text that the encoder can ever read", least=16, most=100_000)
    dropout: float = option(0.0, "dropout while pretraining", least=0, under=1)
    later_dropout: float = option(0.1, "dropout that the saved encoder is fine-tuned with", least=0, under=1)
    inner_mix: InnerKind = option(
        "none", "what each layer reads: the one below, or a learned mix of all below"
    )

    @property
    def sizes(self) -> EncoderShape:
        """The preset with the sizes that were given."""
        preset = PRESETS[self.preset]
        width = self.width or preset.width
        return EncoderShape(
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
    share: float = option(0.15, "share of the tokens that is masked", "mask-share", over=0, under=1)
    teacher: str | None = option(None, "an encoder whose vectors of words and rows are learned too")
    teach_words: float = option(5.0, "weight of the teacher's vectors of words", least=0)
    teach_rows: float = option(1.0, "weight of the teacher's vectors of whole rows", least=0)
    teach_layers: TaughtLayers = option(
        "all", "which layers learn words: each from one of the teacher's, evenly spread, or only the last"
    )

    def rules(self) -> Rules:
        given = [name for name in ("teach_words", "teach_rows", "teach_layers") if _is_given(self, name)]
        return [
            (
                self.teacher is not None or not given,
                f"{_flags(given)} needs a teacher. Name one with --teacher, or leave it out.",
            ),
            (
                self.teacher is None or self.kind in ("mlm", "electra"),
                f"A teacher goes with --objective mlm or electra, not {self.kind}. Leave out --teacher or"
                " --objective.",
            ),
            (
                self.teach_words > 0 or self.teach_rows > 0,
                "teach-words and teach-rows are both 0, so nothing is taught. Leave --teacher out.",
            ),
        ]


@dataclass(frozen=True, kw_only=True)
class PretrainSpec:
    """One encoder made from text.

    >>> bermo.PretrainSpec(seed=2).shape.preset
    'small'
    """

    text: TextSpec = group(TextSpec(), "the text")
    shape: ShapeSpec = group(ShapeSpec(), "the encoder")
    elmo: ElmoSpec = group(ElmoSpec(), "ELMo, with --objective elmo")
    objective: ObjectiveSpec = group(ObjectiveSpec(), "what is learned")
    pace: PaceSpec = group(PaceSpec(), "training")
    seed: int = option(
        1,
        "decides the first weights, the order and the masks",
        title="seed and saving",
        least=0,
        most=LARGEST_SEED,
    )
    half: bool = option(
        False, "save the encoder's weights in fp16, at half the size", title="seed and saving"
    )

    def rules(self) -> Rules:
        text, pace, sizes = self.text, self.pace, self.shape.sizes
        missing = [file for file in text.files if not Path(file).expanduser().is_file()]
        own = [name for name in MODEL_BRINGS if _is_given(self.shape, name)]
        own += [name for name in ("vocabulary", "tokenizer") if _is_given(text, name)]
        return [
            *self._elmo_rules(),
            *self._xlnet_rules(),
            *self._short_rules(),
            *self._head_rules(),
            (
                self.shape.model is None or not own,
                f"--model brings its own shape and tokenizer. Leave out {_flags(own)}, or --model.",
            ),
            (
                not pace.recompute or self.shape.inner_mix == "none",
                "An inner mix cannot be computed again. Leave out --recompute or --inner-mix.",
            ),
            (bool(text.files), "There is nothing to read. Name one text file or more with --text."),
            (not missing, f"{_no_files(missing)}. Pass texts or tables with --text."),
            (
                pace.steps is None or pace.minutes is None,
                "Give either --steps or --minutes: how long is it to train?",
            ),
            (
                text.words is None or Path(text.words).expanduser().is_file(),
                f"There is no file {text.words}. Pass a list of words, one a line, with --words.",
            ),
            (
                text.words is None or text.tokenizer is None,
                "--words is for a vocabulary of our own. Leave out --words or --tokenizer.",
            ),
            (
                16 <= text.length <= self.shape.positions,
                f"length must lie between 16 and positions ({self.shape.positions}), but got {text.length}.",
            ),
            (
                sizes.width % sizes.heads == 0,
                f"width must be a multiple of heads, but got {sizes.width} and {sizes.heads}.",
            ),
        ]

    def _short_rules(self) -> Rules:
        text = self.text
        return [
            (
                (text.short_length is None) == (text.short_steps is None),
                "Short rows need their length and their steps. Give both --short-length and --short-steps.",
            ),
            (
                text.short_length is None or text.short_length < text.length,
                f"short-length must be less than length ({text.length}), but got {text.short_length}.",
            ),
            (
                text.short_length is None or self.objective.teacher is None,
                "A teacher reads whole rows only. Leave out --teacher or --short-length.",
            ),
        ]

    def _head_rules(self) -> Rules:
        is_plain = self.objective.kind == "mlm" and self.objective.teacher is None
        rules = [
            (
                self.shape.model is not None,
                "--only-head is for an encoder that is there. Name it with --model.",
            ),
            (is_plain, "--only-head learns masked words. Leave out --objective and --teacher."),
            (self.shape.layers is None, "--only-head changes no layer. Leave out --layers."),
            (self.text.words is None, "--only-head learns no vector of a new word. Leave out --words."),
            (not self.pace.recompute, "--only-head needs no layer computed again. Leave out --recompute."),
        ]
        return rules if self.pace.only_head else []

    def _elmo_rules(self) -> Rules:
        is_elmo = self.objective.kind == "elmo"
        shape = [name for name in NOT_ELMO if _is_given(self.shape, name)]
        masks = [name for name in MASKS if _is_given(self.objective, name)]
        sizes = [item.name for item in fields(ElmoSpec) if _is_given(self.elmo, item.name)]
        return [
            (
                not is_elmo or not shape,
                f"ELMo is no Transformer and starts from random weights. Leave out {_flags(shape)}; its shape"
                " is --elmo-config, with --cells, --projection, --filters and --highways.",
            ),
            (not is_elmo or not masks, f"ELMo masks nothing. Leave out {_flags(masks)}."),
            (
                not is_elmo or not self.pace.recompute,
                "ELMo cannot compute its layers again. Leave --recompute out.",
            ),
            (
                is_elmo or not sizes,
                f"Only ELMo has {_flags(sizes)}. Leave it out, or train with --objective elmo.",
            ),
        ]

    def _xlnet_rules(self) -> Rules:
        masks = [name for name in MASKS if _is_given(self.objective, name)]
        shape, width = self.shape, self.shape.sizes.width
        rules = [
            (shape.model is None, "XLNet starts from random weights. Leave out --model or --objective."),
            (not masks, f"XLNet guesses a sixth of the tokens, in runs. Leave out {_flags(masks)}."),
            (shape.inner_mix == "none", "XLNet's two streams cannot be mixed inside. Leave out --inner-mix."),
            (not self.pace.recompute, "XLNet cannot compute its layers again. Leave --recompute out."),
            (width % 2 == 0, f"XLNet's width must be even, for its sines and cosines, but got {width}."),
        ]
        return rules if self.objective.kind == "xlnet" else []


def _is_given(spec: Any, name: str) -> bool:
    """Tell whether a field differs from its default."""
    return bool(getattr(spec, name) != getattr(type(spec)(), name))


def _no_files(names: Sequence[str]) -> str:
    """Say of what is no file whether it is there at all."""
    there = [name for name in names if Path(name).expanduser().exists()]
    if there:
        what = "a folder" if Path(there[0]).expanduser().is_dir() else "a pipe or a device"
        return f"{there[0]} is {what}, not a file"
    return f"There is no file {', '.join(names)}"


def _flags(names: Sequence[str]) -> str:
    flags = {"preset": "config", "share": "mask-share", "name": "elmo-config"}
    return " and ".join(f"--{flags.get(name, name).replace('_', '-')}" for name in names)
