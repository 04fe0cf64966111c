"""What a training runs on: a GPU or a CPU, one process or several, and in which arithmetic."""

import atexit
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import distributed

from bermo.choices import Device
from bermo.errors import BermoError
from bermo.machine import processor
from bermo.nn.fast.cpu_half import has_fast_half
from bermo.spec import TrainSpec

if TYPE_CHECKING:
    from accelerate import Accelerator


def _lacks_half(settings: TrainSpec) -> bool:
    """Tell whether bf16 is asked of a processor that has none: a step would take 2.6 times as long with
    AVX-512, ten times and more with less.
    """
    return settings.precision == "bf16" and _is_on_processor(settings) and not _has_bf16()


def half_hint(settings: TrainSpec) -> str | None:
    """Say that bf16 is faster, where a training in fp32 runs on an x86 processor with AMX.

    fp32 stays the default, so that a command ends in the same numbers on every processor.
    """
    if settings.precision != "fp32" or not _is_on_processor(settings):
        return None
    if not (has_fast_half(processor()) and _has_bf16()):
        return None
    return "This processor has AMX: --precision bf16 trains faster than fp32, with other roundings."


def _is_on_processor(settings: TrainSpec) -> bool:
    has_card = torch.cuda.is_available() or torch.backends.mps.is_available()
    return settings.device == "cpu" or not has_card


def _has_bf16() -> bool:
    # torch also says yes where it computes bf16 by other instructions, as on every processor with AVX-512.
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported()) and not processor().lacks_bf16


def check_device(device: Device) -> None:
    """Refuse a GPU that is asked for where torch can use none."""
    if device == "cuda" and not torch.cuda.is_available():
        raise BermoError(
            f"--device cuda needs a GPU, but torch {torch.__version__} can use none here. See: bermo doctor;"
            " or leave --device out."
        )


def make_accelerator(
    settings: TrainSpec, folder: Path, tell: Callable[[str], None] = lambda sentence: None
) -> "Accelerator":
    """Build the accelerator for these settings; the process's earlier one gives way if they differ."""
    from accelerate import Accelerator
    from accelerate.state import AcceleratorState

    check_device(settings.device)
    lacks_half = _lacks_half(settings)
    mixed = "no" if settings.precision == "fp32" or lacks_half else settings.precision
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != mixed:
        AcceleratorState._reset_state()
    has_group = _has_group()
    accelerator = Accelerator(
        mixed_precision=mixed,
        cpu=settings.device == "cpu",
        log_with=None if settings.tracker == "none" else settings.tracker,
        project_dir=str(folder),
    )
    if _has_group() and not has_group:
        atexit.register(_end_group)
    if lacks_half and accelerator.is_main_process:
        tell("This processor has no bf16: training in fp32.")
    if settings.tracker != "none":
        accelerator.init_trackers("bermo")
    return accelerator


def _has_group() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def _end_group() -> None:
    """End the group of processes that we made: gloo's threads must not be alive when the interpreter ends.

    This comes at the end of the process, since a process may train several times and its group serves all of
    them. NCCL waits for operations under way, which after an error may never end: then it is left alone.
    """
    is_after_error = hasattr(sys, "last_value")
    if _has_group() and not (is_after_error and "nccl" in distributed.get_backend()):
        distributed.destroy_process_group()
