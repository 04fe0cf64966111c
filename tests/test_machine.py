"""What each system reports of its processor, from answers written down as the systems give them."""

import sys
from pathlib import Path

import numpy as np
import pytest

from bermo import machine
from bermo.machine import (
    ARM_SETS,
    X86_SETS,
    Processor,
    from_cpuinfo,
    from_sysctl,
    from_windows,
    memory_bytes,
    peak_memory_bytes,
    processor,
    usable_cores,
)

SAPPHIRE_RAPIDS = """processor	: 0
vendor_id	: GenuineIntel
model name	: Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz
flags		: fpu sse2 avx avx2 avx512f avx512_vnni avx512_bf16 amx_bf16 amx_tile amx_int8
bugs		: spectre_v1

processor	: 1
model name	: another
flags		: fpu
"""
HASWELL = "model name\t: Intel(R) Core(TM) i7-4770\nflags\t\t: fpu sse2 avx avx2\n"
ALDER_LAKE = "model name\t: 12th Gen Intel(R) Core(TM) i5\nflags\t\t: fpu avx avx2 avx_vnni\n"
NEOVERSE_N1 = """processor	: 0
Features	: fp asimd aes atomics asimdhp asimddp
CPU implementer	: 0x41
CPU part	: 0xd0c
"""
NEOVERSE_V2 = NEOVERSE_N1.replace("asimddp", "asimddp sve i8mm bf16 sve2").replace("d0c", "d4f")
APPLE_M2 = """machdep.cpu.brand_string: Apple M2
hw.optional.arm.FEAT_DotProd: 1
hw.optional.arm.FEAT_I8MM: 1
hw.optional.arm.FEAT_BF16: 1
hw.optional.arm.FEAT_SME: 0
hw.optional.neon: 1
"""
APPLE_M1 = APPLE_M2.replace("I8MM: 1", "I8MM: 0").replace("BF16: 1", "BF16: 0").replace("M2", "M1")
MAC_INTEL = """machdep.cpu.brand_string: Intel(R) Core(TM) i7-1068NG7 CPU @ 2.30GHz
machdep.cpu.features: FPU VME SSE4.2 AVX1.0
machdep.cpu.leaf7_features: RDWRFSGS AVX2 AVX512F AVX512VNNI
"""


@pytest.mark.parametrize(
    ("text", "architecture", "name", "instructions"),
    [
        (SAPPHIRE_RAPIDS, "x86_64", "Intel(R) Xeon(R) Platinum 8481C CPU @ 2.70GHz", set(X86_SETS)),
        (HASWELL, "x86_64", "Intel(R) Core(TM) i7-4770", {"AVX2"}),
        (ALDER_LAKE, "x86_64", "12th Gen Intel(R) Core(TM) i5", {"AVX2", "VNNI"}),
        (NEOVERSE_N1, "aarch64", "Neoverse-N1", {"NEON", "dotprod"}),
        (NEOVERSE_V2, "aarch64", "Neoverse-V2", set(ARM_SETS)),
        (
            NEOVERSE_N1.replace("d0c", "abc"),
            "aarch64",
            "ARM implementer 0x41, part 0xabc",
            {"NEON", "dotprod"},
        ),
    ],
)
def test_linux_tells_name_and_instruction_sets(
    text: str, architecture: str, name: str, instructions: set[str]
) -> None:
    read = from_cpuinfo(text, architecture, cores=4)
    assert (read.name, read.instructions, read.unreported) == (name, instructions, frozenset())
    assert (read.system, read.cores) == ("Linux", 4)


@pytest.mark.parametrize(
    ("text", "architecture", "name", "instructions"),
    [
        (APPLE_M2, "arm64", "Apple M2", {"NEON", "dotprod", "i8mm", "bf16"}),
        (APPLE_M1, "arm64", "Apple M1", {"NEON", "dotprod"}),
        (MAC_INTEL, "x86_64", "Intel(R) Core(TM) i7-1068NG7 CPU @ 2.30GHz", {"AVX2", "AVX-512", "VNNI"}),
    ],
)
def test_macos_tells_name_and_instruction_sets(
    text: str, architecture: str, name: str, instructions: set[str]
) -> None:
    read = from_sysctl(text, architecture, cores=8)
    assert (read.name, read.instructions, read.system) == (name, instructions, "Darwin")


def test_windows_tells_some_sets_and_leaves_the_others_unreported() -> None:
    x86 = from_windows("AMD Ryzen 9 7950X", {19, 40, 41}, "AMD64", cores=32)
    assert x86.instructions == {"AVX2", "AVX-512"}
    assert x86.unreported == {"VNNI", "AVX-512 bf16", "AMX int8", "AMX bf16"}
    assert x86.is_x86
    assert not x86.has_vnni
    arm = from_windows("Snapdragon X Elite", {19, 43, 66, 68}, "ARM64", cores=12)
    assert arm.instructions == {"NEON", "dotprod", "i8mm", "bf16"}
    assert not arm.unreported
    assert arm.is_arm


def test_a_system_that_tells_nothing_leaves_all_sets_unreported() -> None:
    for read in (from_cpuinfo("", "x86_64", 1), from_sysctl("", "x86_64", 1)):
        assert read.name == "x86_64"
        assert read.unreported == set(X86_SETS)
        assert not read.has_int8


@pytest.mark.parametrize(
    ("text", "architecture", "has_vnni", "has_bf16", "has_int8"),
    [
        (SAPPHIRE_RAPIDS, "x86_64", True, True, True),
        (HASWELL, "x86_64", False, False, False),
        (ALDER_LAKE, "x86_64", True, False, True),
        (NEOVERSE_N1, "aarch64", False, False, True),
        (NEOVERSE_V2, "aarch64", False, True, True),
    ],
)
def test_what_is_fast_follows_from_the_sets(
    text: str, architecture: str, has_vnni: bool, has_bf16: bool, has_int8: bool
) -> None:
    read = from_cpuinfo(text, architecture, cores=1)
    assert (read.has_vnni, read.has_bf16, read.has_int8) == (has_vnni, has_bf16, has_int8)


@pytest.mark.parametrize("system", ["Linux", "Darwin", "Windows", "FreeBSD"])
def test_every_system_is_asked_in_its_own_way(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine.platform, "system", lambda: system)
    monkeypatch.setattr(machine.platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(machine.platform, "processor", lambda: "a processor")
    monkeypatch.setattr(machine, "_read", lambda path: HASWELL)
    monkeypatch.setattr(machine, "_sysctl", lambda: MAC_INTEL)
    monkeypatch.setattr(machine, "_registry_name", lambda: "AMD Ryzen")
    monkeypatch.setattr(machine, "_windows_features", lambda: frozenset({40}))
    own = processor.__wrapped__()
    assert own.system == system
    assert (
        own.name
        == {
            "Linux": "Intel(R) Core(TM) i7-4770",
            "Darwin": "Intel(R) Core(TM) i7-1068NG7 CPU @ 2.30GHz",
            "Windows": "AMD Ryzen",
            "FreeBSD": "a processor",
        }[system]
    )


def test_the_processor_at_hand_is_known_and_usable() -> None:
    own = processor()
    assert isinstance(own, Processor)
    assert own.name
    assert own.cores == usable_cores() >= 1
    assert memory_bytes() > 2**28


def test_peak_memory_counts_what_was_held_and_let_go() -> None:
    held = np.ones(2**28, np.uint8)
    peak = peak_memory_bytes()
    assert peak > held.nbytes
    del held
    # Linux counts pages in batches, so that the peak may differ by some of them from call to call.
    assert peak_memory_bytes() > peak - 2**22


def test_peak_memory_is_the_same_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    by_status = peak_memory_bytes()
    monkeypatch.setattr(machine, "_read", lambda path: "")
    assert peak_memory_bytes() == pytest.approx(by_status, rel=0.2)


def test_peak_memory_asks_windows_for_its_own_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    psutil = pytest.importorskip("psutil")
    used = type("Used", (), {"peak_wset": 123})()
    monkeypatch.setattr(psutil.Process, "memory_info", lambda self: used)
    monkeypatch.setattr(sys, "platform", "win32")
    assert peak_memory_bytes() == 123


def test_a_file_that_cannot_be_read_is_empty(tmp_path: Path) -> None:
    assert machine._read(tmp_path / "none") == ""
