"""A model loaded by its runtime, ready to answer: torch, an ONNX graph, an OpenVINO model, a sparse
container.

    open_candidate(opened, threads) -> Candidate;   candidate(batch of numpy arrays) -> logits

A runtime, torch too, is imported when a model of it is opened. Its thread pool is its own; the bench opens
every candidate in a process of its own.
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from bermo.choices import Device
from bermo.data.batches import LABEL_NAMES, Indices, in_order, pad_rows, trim
from bermo.data.features import Features
from bermo.encoders.failures import loading
from bermo.encoders.meta_kernels import with_all_kernels
from bermo.errors import BermoError
from bermo.runs.model_files import MODEL_FILES, Runtime, hub_graph, read_export
from bermo.runs.reading import BY_GRAPH
from bermo.runs.trained import TrainedFolder
from bermo.ship.runtimes.forms import EXTRAS
from bermo.ship.runtimes.openvino import load_openvino, openvino_precisions
from bermo.ship.runtimes.overflow import check_overflow
from bermo.spec import Precision

if TYPE_CHECKING:
    from bermo.ship.runtimes.torch_candidate import Answers

Batch = Mapping[str, np.ndarray]
TOKENS = "last_hidden_state"
"""The output of a graph that is there for other tools, which pool it themselves."""
AHEAD = 2
"""Batches that a GPU is given before the answers of the first are waited for."""


class Candidate(Protocol):
    """A batch in, logits out: one array, or two for the start and the end of a span."""

    def __call__(self, batch: Batch) -> list[np.ndarray]: ...


@runtime_checkable
class Ahead(Candidate, Protocol):
    """A candidate that computes a batch while the CPU makes the next one: torch's, on a GPU."""

    precision: Precision
    longest: int | None
    """Where shapes should be few: what the model can read, to which batches may be padded on."""

    def start(self, batch: Batch) -> "Answers":
        """Begin to compute a batch, and return a function that waits for its logits."""


class OnnxCandidate:
    """A graph run by onnxruntime on the CPU."""

    def __init__(self, path: Path, threads: int | None) -> None:
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        if threads is not None:
            options.intra_op_num_threads = threads
        # Threads that spin within a call make a short one an eighth faster; spinning on after it takes time
        # from others.
        options.add_session_config_entry("session.force_spinning_stop", "1")
        with loading("graph", path):
            self.session = onnxruntime.InferenceSession(
                str(path), options, providers=["CPUExecutionProvider"]
            )
        self.names = [item.name for item in self.session.get_inputs()]
        outputs = [item.name for item in self.session.get_outputs()]
        self.outputs = [name for name in outputs if name != TOKENS]

    def __call__(self, batch: Batch) -> list[np.ndarray]:
        logits: list[np.ndarray] = self.session.run(self.outputs, {name: batch[name] for name in self.names})
        return logits


class OpenVinoCandidate:
    """A model run by OpenVINO on the CPU, tuned for latency; `allows_bf16` lets it use bf16 where the CPU
    can.
    """

    def __init__(self, path: Path, threads: int | None, allows_bf16: bool = False) -> None:
        openvino = load_openvino()
        is_bf16 = allows_bf16 and "BF16" in openvino_precisions()
        # Without a hint it computes in half precision on ARM, 0.4 % off on tiny models.
        wishes: dict[str, Any] = {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_PRECISION_HINT": "bf16" if is_bf16 else "f32",
        }
        if threads is not None:
            wishes["INFERENCE_NUM_THREADS"] = threads
        core = openvino.Core()
        with loading("graph", path):
            self.model = core.compile_model(core.read_model(str(path)), "CPU", wishes)
        self.names = [item.get_any_name() for item in self.model.inputs]

    def __call__(self, batch: Batch) -> list[np.ndarray]:
        logits = self.model({name: batch[name] for name in self.names})
        return [logits[index] for index in range(len(self.model.outputs))]


def open_candidate(
    opened: TrainedFolder, threads: int | None = None, device: str = "cpu", precision: Precision | None = None
) -> Candidate:
    """Load a folder's model with its runtime; only torch takes another device or precision than the
    folder's own.
    """
    if opened.runtime in BY_GRAPH and (device != "cpu" or precision not in (None, "fp32")):
        raise BermoError(
            f"{opened.folder} is made for {opened.runtime} and runs on the CPU as it is. Leave --device and"
            " --precision out, or give the torch model."
        )
    _check_installed(opened.runtime)
    if opened.runtime in BY_GRAPH:  # a sparse container only stores int8: it is computed in floats
        check_overflow(opened.folder, read_export(opened.folder))
    match opened.runtime:
        case "onnxruntime":
            graph = hub_graph(opened.folder) or opened.folder / MODEL_FILES["onnxruntime"]
            return OnnxCandidate(graph, threads)
        case "openvino":
            # What an int8 model computes in floats may be bf16 too: its step is far larger than bf16's.
            allows_bf16 = opened.precision in ("bf16", "int8")
            return OpenVinoCandidate(opened.folder / "model.xml", threads, allows_bf16)
    import torch

    from bermo.ship.runtimes.torch_candidate import TorchCandidate

    if threads is not None:
        torch.set_num_threads(threads)
    precision = precision or torch_precision(opened)
    load = opened.load_model
    if opened.runtime == "sparse":
        from bermo.ship.runtimes.sparse import load_sparse

        load = partial(load_sparse, opened.folder)
    return TorchCandidate(with_all_kernels(load), device, precision)


def choose_device(opened: TrainedFolder, device: Device) -> str:
    """Return the device on which a folder's model answers: that asked for, or a GPU where torch has one."""
    if device == "cpu" or (device == "auto" and opened.runtime in BY_GRAPH):
        return "cpu"
    import torch

    from bermo.training.devices import check_device

    check_device(device)
    if device != "auto":
        return device
    if torch.cuda.is_available():
        return "cuda"
    return "mps" if torch.backends.mps.is_available() else "cpu"


def torch_precision(opened: TrainedFolder) -> Precision:
    """Return the precision in which torch computes a folder's model where none is asked for."""
    return "bf16" if opened.runtime == "torch" and opened.precision == "bf16" else "fp32"


def answer(
    candidate: Candidate,
    features: Features,
    batch_size: int,
    advance: Callable[[int], None] = lambda num_rows: None,
) -> list[np.ndarray]:
    """Return one prediction a feature, in their order, padding cut off."""
    numbered: list[tuple[int, np.ndarray]] = []
    for rows, logits in _computed(candidate, features, batch_size):
        if not all(np.isfinite(part).all() for part in logits):
            raise BermoError(_not_finite(candidate))
        if is_apart(features):
            logits = [part.reshape(len(rows), features.num_choices, -1) for part in logits]
        numbered += zip(rows.tolist(), trim(features, rows, logits), strict=True)
        advance(len(rows))
    return [array for _, array in sorted(numbered, key=lambda pair: pair[0])]


def _computed(
    candidate: Candidate, features: Features, batch_size: int
) -> Iterator[tuple[Indices, list[np.ndarray]]]:
    """Yield batches and their logits; a GPU computes while the CPU makes the next batch."""
    ahead = candidate if isinstance(candidate, Ahead) else None
    begun: deque[tuple[Indices, Answers]] = deque()
    for rows in in_order(features, batch_size):
        batch = inputs_of(features, rows, None if ahead is None else ahead.longest)
        begun.append((rows, ahead.start(batch) if ahead else _done(candidate(batch))))
        if len(begun) > AHEAD:
            first, answers = begun.popleft()
            yield first, answers()
    for rows, answers in begun:
        yield rows, answers()


def _done(logits: list[np.ndarray]) -> "Answers":
    return lambda: logits


def _not_finite(candidate: Candidate) -> str:
    if isinstance(candidate, Ahead) and candidate.precision == "fp16":
        return (
            "The model's answers are infinite or not a number in fp16, whose numbers end at 65,504."
            " Ask for --precision bf16 or fp32."
        )
    return (
        "The model's answers are infinite or not a number: its training diverged, or a file of it is"
        " damaged. Export it again from a model that is sound."
    )


def inputs_of(features: Features, rows: Indices, longest: int | None = None) -> dict[str, np.ndarray]:
    """Return rows as a runtime's inputs; texts that are read each by itself are rows of their own."""
    padded = pad_rows(features, rows, longest)
    batch = {name: values for name, values in padded.items() if name not in LABEL_NAMES}
    return {k: v.reshape(-1, v.shape[-1]) for k, v in batch.items()} if is_apart(features) else batch


def is_apart(features: Features) -> bool:
    """Tell whether a row has several texts that are read each by itself."""
    return features.task.kind == "embedding" and features.num_choices > 1


def _check_installed(runtime: Runtime) -> None:
    from importlib.util import find_spec

    if runtime in EXTRAS and find_spec(runtime) is None:
        raise BermoError(f'This needs {runtime}. Install the extra: pip install "bermo[{EXTRAS[runtime]}]".')
