"""What a training runs on: a graphics card or processors, one process or several, and in which arithmetic."""

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import torch
from accelerate import Accelerator

from bermo.errors import BermoError
from bermo.spec import TrainSpec


def _lacks_half(settings: TrainSpec) -> bool:
    """Tell whether bf16 is asked of a processor that has none: torch would take ten times as long and more."""
    has_card = torch.cuda.is_available() or torch.backends.mps.is_available()
    is_on_processor = settings.device == "cpu" or not has_card
    return settings.precision == "bf16" and is_on_processor and not _has_bf16()


def _has_bf16() -> bool:
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def make_accelerator(
    settings: TrainSpec, folder: Path, tell: Callable[[str], None] = lambda sentence: None
) -> Accelerator:
    """Build the accelerator for these settings; the process's earlier one gives way if they differ."""
    from accelerate.state import AcceleratorState

    if settings.tracker != "none" and find_spec(settings.tracker) is None:
        raise BermoError(f'The tracker "{settings.tracker}" is not installed: pip install {settings.tracker}')
    lacks_half = _lacks_half(settings)
    mixed = "no" if settings.precision == "fp32" or lacks_half else settings.precision
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != mixed:
        AcceleratorState._reset_state()
    accelerator = Accelerator(
        mixed_precision=mixed,
        cpu=settings.device == "cpu",
        log_with=None if settings.tracker == "none" else settings.tracker,
        project_dir=str(folder),
    )
    if lacks_half and accelerator.is_main_process:
        tell("This processor has no bf16: training in fp32.")
    if settings.tracker != "none":
        accelerator.init_trackers("bermo")
    return accelerator
