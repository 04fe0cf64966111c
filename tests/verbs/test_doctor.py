"""bermo doctor: one screen about any machine, also a broken one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bermo.cli import main
from bermo.machine import ARM_SETS, X86_SETS, Processor, from_windows
from bermo.verbs import doctor
from bermo.verbs.doctor import TRITON, WANTED, Diagnosis, Package, advise, as_json, as_lines
from bermo.verbs.tried_imports import try_imports

XEON = Processor(
    name="Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz with a name that is longer than a line has room",
    architecture="x86_64",
    system="Linux",
    cores=128,
    instructions=frozenset(X86_SETS),
)
GPU: dict[str, Any] = {
    "cuda": "12.8",
    "gpus": [{"name": "NVIDIA H200", "bytes": 150 * 2**30, "capability": "9.0"}] * 8,
    "kernel_fault": None,
    "has_mps": False,
    "has_cpu_bf16": True,
}
CPU = GPU | {"gpus": [], "cuda": None}


def packages(version: str | None = "1.2.3", fault: str | None = None) -> tuple[Package, ...]:
    return tuple(
        Package(name=item.name, use=item.use, install=item.install, version=version, fault=fault)
        for item in (*WANTED, TRITON)
    )


def diagnosis(
    own: Processor = XEON, facts: dict[str, Any] = GPU, made: tuple[Package, ...] | None = None
) -> Diagnosis:
    made = packages() if made is None else made
    return Diagnosis(
        bermo="0.1.0",
        system="Linux 6.18",
        python="3.11.7",
        processor=own,
        memory_bytes=2**40,
        packages=made,
        gpus=doctor._gpus(facts),
        driver="570.1",
        kernel_fault=facts["kernel_fault"],
        advice=tuple(advise(own, made, facts)),
    )


@pytest.mark.parametrize("own", [XEON, from_windows("AMD Ryzen", {40}, "AMD64", 8)])
@pytest.mark.parametrize("facts", [GPU, CPU, GPU | {"kernel_fault": "no compiler " * 40}])
@pytest.mark.parametrize(
    "made",
    [packages(), packages(None), packages(fault="ImportError: " + "libsomething.so.1 " * 40)],
    ids=["whole", "bare", "broken"],
)
def test_the_report_fits_on_one_screen(
    own: Processor, facts: dict[str, Any], made: tuple[Package, ...]
) -> None:
    lines = as_lines(diagnosis(own, facts, made))
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 80


def test_the_report_names_what_is_there_and_what_is_missing() -> None:
    made = tuple(replace(item, version=None) if item.name == "openvino" else item for item in packages())
    made = tuple(replace(item, fault="OSError: bad file") if item.name == "onnx" else item for item in made)
    text = " ".join(" ".join(as_lines(diagnosis(made=made))).split())
    assert "has AVX2, AVX-512, VNNI" in text
    assert "NVIDIA H200, 150 GiB, compute 9.0, CUDA 12.8" in text
    assert "Triton kernels can be built" in text
    assert "onnx 1.2.3 is broken: OSError: bad file" in text
    assert 'Missing openvino (running OpenVINO): pip install "bermo[openvino]"' in text


@pytest.mark.parametrize(
    ("own", "said"),
    [
        (XEON, "openvino-bf16 for many rows, onnx-int8 for single"),
        (replace(XEON, instructions=frozenset({"AVX2", "VNNI"})), "VNNI"),
        (replace(XEON, instructions=frozenset({"AVX2"})), "openvino in fp32"),
        (from_windows("AMD Ryzen", {40}, "AMD64", 8), "which this system does not tell"),
        (replace(XEON, architecture="arm64", instructions=frozenset(ARM_SETS)), "onnx-int8"),
        (replace(XEON, architecture="arm64", instructions=frozenset()), "no fast int8"),
    ],
)
def test_the_expected_best_form_follows_from_the_instruction_sets(own: Processor, said: str) -> None:
    assert said in " ".join(advise(own, packages(), CPU))


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        (GPU, "on the GPU, --precision bf16, fused step"),
        (GPU | {"kernel_fault": "no compiler"}, "no fused step"),
        (CPU, "on the CPU, --precision bf16, faster than fp32 (AMX)"),
        (CPU | {"has_cpu_bf16": False}, "on the CPU, fp32"),
        (CPU | {"has_mps": True}, "MPS"),
    ],
)
def test_how_training_is_fast_follows_from_what_torch_can_use(facts: dict[str, Any], said: str) -> None:
    assert said in next(advise(XEON, packages(), facts))


def test_bf16_is_not_advised_where_torch_only_imitates_it() -> None:
    without = replace(XEON, instructions=frozenset({"AVX2", "AVX-512", "VNNI"}))
    assert "on the CPU, fp32" in next(advise(without, packages(), CPU))


def test_bf16_is_not_advised_where_it_was_not_measured() -> None:
    without = replace(XEON, instructions=frozenset({"AVX2", "AVX-512", "VNNI", "AVX-512 bf16"}))
    assert "on the CPU, fp32;" in next(advise(without, packages(), CPU))


def test_json_holds_the_same_facts() -> None:
    values = json.loads(as_json(diagnosis()))
    assert values["processor"]["instructions"] == sorted(X86_SETS)
    assert values["packages"][0]["name"] == "torch"


def test_packages_that_fail_or_crash_are_lines_and_the_rest_is_still_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, content in {
        "first_fine": "print('chatter')",
        "then_raises": "raise OSError('a library\\nis missing')",
        "then_crashes": "import os; os.abort()",
        "last_fine": "",
    }.items():
        (tmp_path / f"{name}.py").write_text(content)
    monkeypatch.setenv("PYTHONPATH", f"{Path(doctor.__file__).parents[2]}:{tmp_path}")
    faults, torch_facts = try_imports(["first_fine", "then_raises", "then_crashes", "last_fine"])
    assert faults == {
        "first_fine": None,
        "then_raises": "OSError: a library",
        "then_crashes": "importing it ends Python with code -6",
        "last_fine": None,
    }
    assert torch_facts == {}


def test_the_command_reports_a_machine_where_nothing_can_be_imported(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(doctor, "try_imports", lambda names: (dict.fromkeys(names, "ImportError: no"), {}))
    assert main(["doctor"]) == 0
    assert "torch" in capsys.readouterr().out
    assert main(["doctor", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == []
