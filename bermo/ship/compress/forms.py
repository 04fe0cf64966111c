"""Every form of one model that this machine can write and run, each in a folder of its own.

What is fastest is a property of the machine: int8 with signed weights, bf16 in OpenVINO, or plain fp32. So
all forms are written, each is compared with its model by the export itself, and a bench decides between those
that passed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bermo.crashes import was_interrupted
from bermo.errors import BermoError
from bermo.files import passing_folder
from bermo.progress import Display
from bermo.ship.export.run import export
from bermo.ship.export.spec import ExportSpec
from bermo.ship.runtimes.forms import FORMS, Form, FormName, why_not, why_slow
from bermo.sums import check_sums

LEFT_OUT: tuple[FormName, ...] = ("sparse", "onnx-int8")
"""A sparse container runs as the dense model does; onnx-int8 is the better of its two signs, which are both
tried.
"""


@dataclass(frozen=True, kw_only=True)
class FormsSpec:
    """Which forms are written, and what each is compared on."""

    forms: tuple[FormName, ...] = ()
    """These forms alone; none named: all that this machine can run."""
    data: Path | None = None
    calibrate: Path | None = None
    max_loss: float = 1.0


@dataclass(frozen=True, kw_only=True)
class WrittenForms:
    """The folders of the forms that passed, and why the others did not."""

    folders: Mapping[FormName, Path]
    refused: Mapping[FormName, str]


def chosen_forms(names: Sequence[FormName]) -> list[Form]:
    """Return the forms that were named, or all that are worth comparing."""
    return [FORMS[name] for name in names] or [f for f in FORMS.values() if f.name not in LEFT_OUT]


def write_forms(model: Path, out: Path, spec: FormsSpec, display: Display) -> WrittenForms:
    """Export a model to every form into `out`/FORM; what is there already is kept, what is refused is
    reported.
    """
    folders: dict[FormName, Path] = {}
    refused: dict[FormName, str] = {}
    with passing_folder(out / "traced") as aside:
        for form in chosen_forms(spec.forms):
            reason = _write(model, out / form.name, form, spec, display, aside / "traced.onnx")
            if reason is None:
                folders[form.name] = out / form.name
            else:
                refused[form.name] = reason
                display.tell(f"{form.name} is left out. {reason}")
    if not folders:
        raise BermoError(
            f"No form of {model} can be used on this machine. {' '.join(dict.fromkeys(refused.values()))}"
        )
    return WrittenForms(folders=folders, refused=refused)


def _write(
    model: Path, folder: Path, form: Form, spec: FormsSpec, display: Display, traced: Path
) -> str | None:
    """Write one form where it is not there yet, or return why it cannot be used."""
    has_texts = (spec.calibrate or spec.data) is not None
    reason = why_not(form, has_texts=has_texts) or (None if spec.forms else why_slow(form))
    if reason is None and folder.exists():
        check_sums(folder, f"Delete {folder}, and the same command writes it again")
    elif reason is None:
        wanted = ExportSpec(to=form.name, data=spec.data, calibrate=spec.calibrate, max_loss=spec.max_loss)
        try:
            compared = export(model, folder, wanted, display, traced).compared
            if compared.is_within_noise:
                display.tell(f"{form.name} is kept. {compared.doubt}")
        except BermoError as error:
            if was_interrupted(error):
                raise KeyboardInterrupt from error
            reason = str(error)
    return reason
