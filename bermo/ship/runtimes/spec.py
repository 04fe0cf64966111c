"""What a trained model is asked: the columns of a file, how many rows at a time, and on which device."""

from dataclasses import dataclass
from typing import Literal

from bermo.fields import Rules, option
from bermo.spec import DEVICE_HELP, Device, device_rules


@dataclass(frozen=True, kw_only=True)
class EvaluateSpec:
    """How a test file is read and answered."""

    text: tuple[str, ...] | None = option(None, "column(s) of the text, if not those of training")
    label: str | None = option(None, "column of the label, if not that of training")
    unknown: Literal["error", "wrong"] = option(
        "error", "a label that the model was not taught is an error, or counts as a wrong answer"
    )
    batch_size: int = option(64, "rows at a time", least=1)
    device: Device = option("auto", DEVICE_HELP)

    def rules(self) -> Rules:
        return device_rules(self.device)
