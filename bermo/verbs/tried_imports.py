"""Which packages can be imported, and what torch can use: asked in a process of its own, which may even
crash.

A package built for another processor ends Python with a signal, which no `except` catches. So a process
imports one package after the other and prints a line for each; the package at which it died is named, and
another process goes on with the rest.
"""

import importlib
import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

MARK = "bermo doctor: "
SECONDS = 300.0
# The name "bermo" tells the package that this is its command, so that importing it imports nothing heavy.
START = "import sys; sys.argv[0] = 'bermo'; from bermo.verbs.tried_imports import tell; tell(sys.argv[1:])"


def try_imports(names: Sequence[str]) -> tuple[dict[str, str | None], dict[str, Any]]:
    """Import each package elsewhere; returns why it fails, or None, for each, and what torch can use."""
    faults: dict[str, str | None] = {}
    torch_facts: dict[str, Any] = {}
    while rest := [name for name in names if name not in faults]:
        answers, ending = _ask(rest)
        for answer in answers:
            if "torch" in answer:
                torch_facts = answer["torch"]
            else:
                faults[answer["name"]] = answer["fault"]
        left = [name for name in rest if name not in faults]
        if left:
            faults[left[0]] = f"importing it {ending}"
    return faults, torch_facts


def _ask(names: Sequence[str]) -> tuple[list[Any], str]:
    """Start the process, and return its lines and how it ended."""
    command = [sys.executable, "-c", START, *names]
    try:
        done = subprocess.run(
            command, capture_output=True, encoding="utf-8", errors="replace", timeout=SECONDS, check=False
        )
    except subprocess.TimeoutExpired as late:
        printed = late.stdout if isinstance(late.stdout, bytes) else b""
        return _lines(printed.decode("utf-8", "replace")), f"does not end within {SECONDS:.0f} s"
    return _lines(done.stdout), f"ends Python with code {done.returncode}"


def _lines(printed: str) -> list[Any]:
    return [json.loads(line.removeprefix(MARK)) for line in printed.splitlines() if line.startswith(MARK)]


def tell(names: Sequence[str]) -> None:
    """Import the packages in turn, and print what came of each."""
    for name in names:
        try:
            importlib.import_module(name)
        except Exception as error:
            first = str(error).strip().partition("\n")[0]
            _print({"name": name, "fault": f"{type(error).__name__}: {first}"})
            continue
        if name == "torch":
            _print({"torch": _torch_facts()})
        _print({"name": name, "fault": None})


def _torch_facts() -> Mapping[str, Any]:
    import torch

    facts: dict[str, Any] = {"cuda": torch.version.cuda, "gpus": [], "kernel_fault": None}
    facts["has_mps"] = torch.backends.mps.is_available()
    try:
        facts["has_cpu_bf16"] = bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
        for index in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(index)
            version = f"{gpu.major}.{gpu.minor}"
            facts["gpus"].append({"name": gpu.name, "bytes": gpu.total_memory, "capability": version})
        from bermo.nn.fast.available import kernel_fault

        facts["kernel_fault"] = kernel_fault()
    # Drivers fail in ways of their own, and each is a line of the report.
    except Exception as error:
        facts["kernel_fault"] = str(error).strip().partition("\n")[0] or type(error).__name__
    return facts


def _print(answer: Mapping[str, Any]) -> None:
    print(MARK + json.dumps(answer), flush=True)
