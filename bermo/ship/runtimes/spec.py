"""What a trained model is asked: the columns of a file, how many rows at a time, and on which device."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from bermo.choices import DEVICE_HELP, SEPARATOR_HELP, Device, device_rules, separator_rule
from bermo.fields import Rules, option
from bermo.spec import Precision

PRECISION_HELP = "arithmetic of a torch model; bf16 and fp16 are for GPUs"


@dataclass(frozen=True, kw_only=True)
class PredictSpec:
    """How texts are read and answered, and what stands beside an answer."""

    columns: tuple[str, ...] | None = option(None, "column(s) of the text, if not those of training")
    id: tuple[str, ...] | None = option(None, "column(s) to write beside each answer, such as an id")
    with_text: bool = option(False, "write the text beside each answer")
    truth: str | None = option(
        None, "column of the right labels: beside each answer stands whether it is right", metavar="COLUMN"
    )
    probabilities: bool = option(False, "give the probability of every class, or of each word's tag")
    top: int | None = option(None, "give the so many likeliest classes, with their probabilities", least=1)
    format: Literal["txt", "csv", "tsv", "jsonl"] | None = option(
        None, "of standard input: one text a line, or a table", shown="txt"
    )
    separator: str | None = option(None, SEPARATOR_HELP)
    batch_size: int = option(64, "rows at a time", least=1)
    device: Device = option("auto", DEVICE_HELP)
    precision: Precision | None = option(None, PRECISION_HELP, shown="fp32, or the export's own")

    def rules(self) -> Rules:
        return [separator_rule(self.separator), *device_rules(self.device)]


@dataclass(frozen=True, kw_only=True)
class EvaluateSpec:
    """How a test file is read and answered."""

    text: tuple[str, ...] | None = option(None, "column(s) of the text, if not those of training")
    label: str | None = option(None, "column of the label, if not that of training")
    metric: str | None = option(
        None,
        "the score that is shown with its interval, one that bermo train could choose by: a name, or a"
        " function of your own, FILE.py:FUNCTION",
        shown="that of training, where it is no function",
    )
    against: Path | None = option(
        None, "another model of the same classes: which answers differ from its, such as the dense one's"
    )
    unknown: Literal["error", "wrong"] = option(
        "error", "a label that the model was not taught is an error, or counts as a wrong answer"
    )
    separator: str | None = option(None, SEPARATOR_HELP)
    batch_size: int = option(64, "rows at a time", least=1)
    device: Device = option("auto", DEVICE_HELP)
    precision: Precision | None = option(None, PRECISION_HELP, shown="fp32, or the export's own")

    def rules(self) -> Rules:
        return [separator_rule(self.separator), *device_rules(self.device)]


@dataclass(frozen=True, kw_only=True)
class EncodeSpec:
    """How texts become vectors."""

    prompt: str | None = option(
        None, "name of the model's prompt that stands before each text, such as query", metavar="NAME"
    )
    dimension: int | None = option(
        None, "keep only the first so many units, for models trained so (Matryoshka)", least=1
    )
    columns: tuple[str, ...] | None = option(None, "column of the text, if not known by its name")
    separator: str | None = option(None, SEPARATOR_HELP)
    batch_size: int = option(64, "rows at a time", least=1)
    device: Device = option("auto", DEVICE_HELP)

    def rules(self) -> Rules:
        return [separator_rule(self.separator), *device_rules(self.device)]


@dataclass(frozen=True, kw_only=True)
class SearchSpec:
    """How many texts are found, and how they become vectors."""

    top: int = option(5, "texts to show for each query", least=1)
    vectors: Path | None = option(None, "the corpus's vectors, as bermo encode wrote them", metavar="FILE")
    encode: EncodeSpec = EncodeSpec()
