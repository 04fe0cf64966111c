"""bermo doctor: this machine in one screen: processor, packages, GPU, what is fast on it, and what is
missing.
"""

import json
import platform
import shutil
import subprocess
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from bermo.fields import option
from bermo.machine import ARM_SETS, X86_SETS, Processor, memory_bytes, processor
from bermo.verbs.tried_imports import try_imports
from bermo.verbs.verb import Verb

WIDTH, INDENT = 80, 12


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """A package that we use: for what, and how it is installed."""

    name: str
    use: str
    install: str


WANTED = (
    Wanted(name="torch", use="all computing", install="pip install torch"),
    Wanted(name="transformers", use="encoders", install="pip install transformers"),
    Wanted(name="tokenizers", use="encoders", install="pip install tokenizers"),
    Wanted(name="accelerate", use="training", install="pip install accelerate"),
    Wanted(name="onnx", use="export to ONNX", install='pip install "bermo[onnx]"'),
    Wanted(name="onnxscript", use="export to ONNX", install='pip install "bermo[onnx]"'),
    Wanted(name="onnxruntime", use="running ONNX, int8", install='pip install "bermo[onnx]"'),
    Wanted(name="openvino", use="running OpenVINO", install='pip install "bermo[openvino]"'),
    Wanted(name="nncf", use="int8 for OpenVINO", install='pip install "bermo[nncf]"'),
    Wanted(name="pyarrow", use="Parquet files", install='pip install "bermo[parquet]"'),
    Wanted(name="datasets", use="data of the hub", install='pip install "bermo[hub]"'),
)
TRITON = Wanted(name="triton", use="kernels on NVIDIA GPUs", install="pip install triton")


@dataclass(frozen=True, kw_only=True)
class Package:
    """A package as it is installed: its version, and why it cannot be imported, if so."""

    name: str
    use: str
    install: str
    version: str | None
    fault: str | None


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Everything that the report says, as data."""

    bermo: str
    system: str
    python: str
    processor: Processor
    memory_bytes: int
    packages: tuple[Package, ...]
    gpus: tuple[str, ...]
    driver: str | None
    kernel_fault: str | None
    advice: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class DoctorOptions:
    """How the report is printed."""

    json: bool = option(False, "print the same as JSON")


def run(options: DoctorOptions) -> int:
    found = diagnose()
    print(as_json(found) if options.json else "\n".join(as_lines(found)))
    return 0


def diagnose() -> Diagnosis:
    """Look at this machine; the packages are imported in another process."""
    own = processor()
    # Triton is made for Linux; elsewhere its absence is no gap.
    wanted = (*WANTED, TRITON) if own.system == "Linux" else WANTED
    versions = {item.name: _version(item.name) for item in wanted}
    faults, torch_facts = try_imports([name for name, known in versions.items() if known is not None])
    packages = tuple(
        Package(**asdict(item), version=versions[item.name], fault=faults.get(item.name)) for item in wanted
    )
    return Diagnosis(
        bermo=_version("bermo") or "not installed",
        system=f"{platform.system()} {platform.release()}",
        python=platform.python_version(),
        processor=own,
        memory_bytes=memory_bytes(),
        packages=packages,
        gpus=_gpus(torch_facts),
        driver=_driver(),
        kernel_fault=torch_facts.get("kernel_fault"),
        advice=tuple(advise(own, packages, torch_facts)),
    )


def advise(own: Processor, packages: Sequence[Package], torch_facts: Mapping[str, Any]) -> Iterator[str]:
    """Say what is expected to be fast on this machine; only a bench knows."""
    has = {item.name for item in packages if item.version is not None and item.fault is None}
    if torch_facts.get("gpus"):
        fused = "no fused step" if torch_facts.get("kernel_fault") else "fused step"
        yield f"Training: on the GPU, --precision bf16, {fused}."
    elif torch_facts.get("has_mps"):
        yield "Training: on the GPU (MPS); no Triton kernels there, so no fused step."
    elif torch_facts:
        has_bf16 = torch_facts.get("has_cpu_bf16") and not own.lacks_bf16
        has_amx = has_bf16 and own.is_x86 and "AMX bf16" in own.instructions
        precision = "--precision bf16" if has_amx else "fp32" if has_bf16 else "fp32 (this CPU has no bf16)"
        gain = ", faster than fp32 (AMX)" if has_amx else ""
        yield f"Training: on the CPU, {precision}{gain}; no fused step, which needs an NVIDIA GPU."
    yield _best_form(own)
    if not {"onnxruntime", "openvino"} & has:
        yield "Neither onnxruntime nor OpenVINO can be used: torch alone serves models."
    yield "These are expectations; bermo export --to best measures them."


def _best_form(own: Processor) -> str:
    """The form of an export that the instruction sets let expect to be the fastest."""
    if own.is_x86 and own.has_bf16:
        return "Serving: openvino-bf16 for many rows, onnx-int8 for single rows."
    if own.is_x86 and own.has_vnni:
        return "Serving: onnx-int8 or openvino-int8 (VNNI)."
    if own.is_x86 and "VNNI" in own.unreported:
        return "Serving: onnx-int8 if the processor has VNNI, which this system does not tell; else openvino."
    if own.is_x86:
        return "Serving: openvino in fp32; without VNNI int8 gains little speed, but a quarter of the size."
    if own.has_int8:
        return "Serving: onnx-int8 (dotprod)."
    return "Serving: onnx in fp32; this processor has no fast int8."


def as_json(found: Diagnosis) -> str:
    """Write all facts as JSON."""
    return json.dumps(asdict(found), indent=2, default=sorted)


def as_lines(found: Diagnosis) -> list[str]:
    """Write the report, at most 80 columns wide and 40 lines long."""
    own = found.processor
    lines = [f"bermo {found.bermo}, Python {found.python}, {found.system}", ""]
    lines += _entry(
        "Processor",
        f"{own.name} ({own.architecture}), {own.cores} cores, {found.memory_bytes / 2**30:.1f} GiB memory",
        *_instructions(own),
    )
    lines += _entry("GPU", *(found.gpus or ("none that torch can use",)), *_gpu_notes(found))
    lines += _entry("Packages", *_packages(found.packages))
    lines += _entry("Fast here", *found.advice)
    return lines + _entry("Missing", *(_missing(found.packages) or ["nothing"]))


def _entry(title: str, *texts: str) -> list[str]:
    """A title in the left column and its texts in the right one."""
    wrapped = [line for text in texts for line in textwrap.wrap(text, WIDTH - INDENT)]
    return [f"{title if index == 0 else '':<{INDENT}}{line}" for index, line in enumerate(wrapped)]


def _cut(text: str) -> str:
    """One line of a long text; --json has the whole."""
    return textwrap.shorten(text, WIDTH - INDENT, placeholder=" …")


def _instructions(own: Processor) -> Iterator[str]:
    known = ARM_SETS if own.is_arm else X86_SETS
    for word, names in (
        ("has", [name for name in known if name in own.instructions]),
        ("lacks", [name for name in known if name not in own.instructions | own.unreported]),
        ("not told by the system:", [name for name in known if name in own.unreported]),
    ):
        if names:
            yield f"{word} {', '.join(names)}"


def _gpus(torch_facts: Mapping[str, Any]) -> tuple[str, ...]:
    cuda = torch_facts.get("cuda")
    named = tuple(
        f"{gpu['name']}, {gpu['bytes'] / 2**30:.0f} GiB, compute {gpu['capability']}, CUDA {cuda}"
        for gpu in torch_facts.get("gpus", ())
    )
    return named[:4] or (("Apple GPU (MPS)",) if torch_facts.get("has_mps") else ())


def _gpu_notes(found: Diagnosis) -> Iterator[str]:
    is_nvidia = bool(found.gpus) and "MPS" not in found.gpus[0]
    if found.driver is not None:
        yield f"NVIDIA driver {found.driver}"
    if found.driver is not None and not is_nvidia:
        yield "The driver sees a GPU that this torch cannot use: install torch for CUDA."
    if is_nvidia:
        fault = found.kernel_fault
        built = "Triton kernels can be built"
        yield built if fault is None else _cut(f"no Triton kernel can be built: {fault}")


def _packages(packages: Sequence[Package]) -> Iterator[str]:
    """Installed packages side by side, and a line for each that cannot be imported."""
    yield ", ".join(f"{item.name} {item.version}" for item in packages if item.version and not item.fault)
    for item in packages:
        if item.fault is not None:
            yield _cut(f"{item.name} {item.version} is broken: {item.fault}")


def _missing(packages: Sequence[Package]) -> list[str]:
    return [f"{item.name} ({item.use}): {item.install}" for item in packages if item.version is None]


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _driver() -> str | None:
    """The version of NVIDIA's driver, or None where it has none or cannot be asked."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return None
    words = [tool, "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip().partition("\n")[0] or None if done.returncode == 0 else None


VERB = Verb(help="what this machine has, what is fast on it, what is missing", options=DoctorOptions, run=run)
