"""The forms that a model can be exported to: one table, read by `bermo export` and by all that compares
forms.

    FORMS["onnx-int8"]                     a form: its runtime, the precision of its arithmetic, what it needs
    why_not(form, has_texts=True)          None where it can be written and run on this machine, or the reason
    why_slow(form)                         None, or why its arithmetic is known to be slow on this processor

This file imports no runtime, so that the command line can list the forms at once.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, get_args

from bermo.errors import BermoError, nearest
from bermo.machine import Processor, processor

if TYPE_CHECKING:
    from bermo.runs.model_files import Runtime

Precision = Literal["fp32", "bf16", "int8"]
Sign = Literal["signed", "unsigned"]
Values = Literal["fp32", "fp16", "int8", "gobo", "groups3", "groups2"]
"""How a sparse container stores the weights that were kept."""
Words = Literal["int8", "int4"]
"""How an int8 form stores the vectors of words."""
StoredWords = Literal[Words, "fp32"]
FEW_BITS: tuple[Values, ...] = ("gobo", "groups3", "groups2")
"""Those that make a container of a model that was never pruned worth while."""
FormName = Literal[
    "onnx",
    "onnx-int8",
    "onnx-int8-signed",
    "onnx-int8-unsigned",
    "openvino",
    "openvino-bf16",
    "openvino-int8",
    "torch-bf16",
    "sparse",
]
FORM_NAMES: tuple[FormName, ...] = get_args(FormName)
SIGNS: tuple[Sign, ...] = get_args(Sign)
EXTRAS: Mapping[str, str] = {
    "onnx": "onnx",
    "onnxscript": "onnx",
    "onnxruntime": "onnx",
    "openvino": "openvino",
}
"""The extra of bermo that installs a package."""
ONNX = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True, kw_only=True)
class Form:
    """How a model is stored and computed: what `bermo export --to NAME` writes."""

    name: FormName
    runtime: "Runtime"
    precision: Precision
    """The precision of the arithmetic; a sparse container is computed in fp32 whatever its stored values."""
    signs: tuple[Sign, ...] = ()
    """The signs of int8 weights that are tried; where there are two, the export compares them."""
    packages: tuple[str, ...] = ()
    needs_texts: bool = False
    """Whether texts must be given that fix the ranges of activations (--calibrate or --data)."""
    summary: str


FORMS: Mapping[FormName, Form] = {
    form.name: form
    for form in (
        Form(
            name="onnx", runtime="onnxruntime", precision="fp32", packages=ONNX, summary="onnxruntime in fp32"
        ),
        Form(
            name="onnx-int8",
            runtime="onnxruntime",
            precision="int8",
            signs=SIGNS,
            packages=ONNX,
            summary="onnxruntime with int8 weights, the better of both signs on this machine",
        ),
        Form(
            name="onnx-int8-signed",
            runtime="onnxruntime",
            precision="int8",
            signs=("signed",),
            packages=ONNX,
            summary="onnxruntime with signed int8 weights",
        ),
        Form(
            name="onnx-int8-unsigned",
            runtime="onnxruntime",
            precision="int8",
            signs=("unsigned",),
            packages=ONNX,
            summary="onnxruntime with unsigned int8 weights",
        ),
        Form(
            name="openvino",
            runtime="openvino",
            precision="fp32",
            packages=(*ONNX, "openvino"),
            summary="OpenVINO in fp32",
        ),
        Form(
            name="openvino-bf16",
            runtime="openvino",
            precision="bf16",
            packages=(*ONNX, "openvino"),
            summary="OpenVINO with the same weights, computed in bf16",
        ),
        Form(
            name="openvino-int8",
            runtime="openvino",
            precision="int8",
            signs=("signed",),
            packages=(*ONNX, "openvino"),
            needs_texts=True,
            summary="OpenVINO with int8 weights and calibrated ranges",
        ),
        Form(
            name="torch-bf16",
            runtime="torch",
            precision="bf16",
            summary="torch with weights and arithmetic in bf16",
        ),
        Form(
            name="sparse",
            runtime="sparse",
            precision="fp32",
            summary="a container that stores only the weights that were kept",
        ),
    )
}


def find_form(name: str) -> Form:
    """Return the form of this name, or refuse with the nearest known one."""
    for form in FORMS.values():
        if form.name == name:
            return form
    raise BermoError(f'There is no form "{name}".{nearest(name, FORM_NAMES)}')


def why_not(form: Form, *, has_texts: bool = True) -> str | None:
    """Say in a sentence why a form cannot be written and run on this machine, or return None where it can."""
    for package in form.packages:
        if find_spec(package) is None:
            return f'{form.name} needs {package}. Install the extra: pip install "bermo[{EXTRAS[package]}]".'
    if form.needs_texts and not has_texts:
        return (
            f"{form.name} needs texts to find the ranges of activations. Pass --calibrate FILE with some of"
            " your texts (labels are not used)."
        )
    if form.runtime == "openvino" and form.precision == "bf16":
        from bermo.ship.runtimes.openvino import openvino_precisions

        if "BF16" not in openvino_precisions():
            return (
                f"{form.name} needs a CPU on which OpenVINO computes in bf16; {processor().name} is none."
                " Export --to openvino, or do it on the machine that will run it."
            )
    return None


def check_form(form: Form, *, has_texts: bool = True) -> None:
    """Refuse a form that cannot be written and run on this machine."""
    reason = why_not(form, has_texts=has_texts)
    if reason is not None:
        raise BermoError(reason)


def why_slow(form: Form, on: Processor | None = None) -> str | None:
    """Say in a sentence why a form's arithmetic is slow on a processor, or return None where nothing is
    known.
    """
    on = on or processor()
    if form.precision == "bf16" and on.lacks_bf16:
        return f"{on.name} has no instructions for bf16, so that {form.name} is slower there than fp32."
    return None
