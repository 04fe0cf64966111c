"""The machine at hand: its processor, instruction sets and memory, as Linux, macOS and Windows report them.

Each system's answer is parsed by a function of its own from the text that the system gives, so that a test
can stand in for any machine. What a system does not report counts as absent, and is listed as unreported.
"""

import ctypes
import os
import platform
import subprocess
import sys
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

# The instruction sets that decide which arithmetic is fast, and how Linux (x86, ARM) and macOS call them.
X86_SETS: Mapping[str, tuple[str, ...]] = {
    "AVX2": ("avx2",),
    "AVX-512": ("avx512f",),
    "VNNI": ("avx512_vnni", "avx512vnni", "avx_vnni"),
    "AVX-512 bf16": ("avx512_bf16", "avx512bf16"),
    "AMX int8": ("amx_int8",),
    "AMX bf16": ("amx_bf16",),
}
ARM_SETS: Mapping[str, tuple[str, ...]] = {
    "NEON": ("asimd", "neon", "advsimd"),
    "dotprod": ("asimddp", "feat_dotprod"),
    "i8mm": ("i8mm", "feat_i8mm"),
    "bf16": ("bf16", "feat_bf16"),
    "SVE": ("sve",),
}
# The numbers that Windows' IsProcessorFeaturePresent knows; it has none for VNNI, AMX and AVX-512 bf16.
WINDOWS_X86: Mapping[str, int] = {"AVX2": 40, "AVX-512": 41}
WINDOWS_ARM: Mapping[str, int] = {"NEON": 19, "dotprod": 43, "i8mm": 66, "bf16": 68, "SVE": 46}
BF16_SETS = frozenset({"AVX-512 bf16", "AMX bf16", "bf16"})
INT8_SETS = frozenset({"VNNI", "AMX int8", "dotprod", "i8mm"})

# ARM processors give Linux two numbers, (implementer, part), and no name.
ARM_NAMES: Mapping[tuple[int, int], str] = {
    (0x41, 0xD03): "Cortex-A53",
    (0x41, 0xD07): "Cortex-A57",
    (0x41, 0xD08): "Cortex-A72",
    (0x41, 0xD0B): "Cortex-A76",
    (0x41, 0xD0C): "Neoverse-N1",
    (0x41, 0xD40): "Neoverse-V1",
    (0x41, 0xD49): "Neoverse-N2",
    (0x41, 0xD4F): "Neoverse-V2",
    (0x46, 0x001): "Fujitsu A64FX",
    (0x4E, 0x004): "NVIDIA Carmel",
    (0x51, 0x001): "Qualcomm Oryon",
    (0xC0, 0xAC3): "Ampere-1",
    (0xC0, 0xAC4): "Ampere-1A",
}


@dataclass(frozen=True, kw_only=True)
class Processor:
    """A processor: its name, its architecture as Python names it, and the instruction sets that matter to
    us.
    """

    name: str
    architecture: str
    system: str
    cores: int
    instructions: frozenset[str] = frozenset()
    unreported: frozenset[str] = frozenset()

    @property
    def is_x86(self) -> bool:
        return self.architecture.lower() in ("x86_64", "amd64", "x86-64")

    @property
    def is_arm(self) -> bool:
        return self.architecture.lower() in ("aarch64", "arm64")

    @property
    def has_vnni(self) -> bool:
        """Tell whether an x86 processor adds products of bytes in 32 bits, so that none overflows."""
        return "VNNI" in self.instructions

    @property
    def has_bf16(self) -> bool:
        """Tell whether it multiplies matrices of bf16 itself."""
        return bool(BF16_SETS & self.instructions)

    @property
    def lacks_bf16(self) -> bool:
        """Tell whether it is known to have no instructions for bf16, which is slower than fp32 then."""
        return not BF16_SETS & (self.instructions | self.unreported)

    @property
    def has_int8(self) -> bool:
        """Tell whether it multiplies bytes into 32 bits itself, which makes int8 fast."""
        return bool(INT8_SETS & self.instructions)


@cache
def processor() -> Processor:
    """Describe the processor of this machine; asked once in a process."""
    architecture, system = platform.machine(), platform.system()
    if system == "Linux":
        return from_cpuinfo(_read(Path("/proc/cpuinfo")), architecture, usable_cores())
    if system == "Darwin":
        return from_sysctl(_sysctl(), architecture, usable_cores())
    if system == "Windows":
        return from_windows(_registry_name(), _windows_features(), architecture, usable_cores())
    name = platform.processor() or architecture
    return Processor(name=name, architecture=architecture, system=system, cores=usable_cores())


def from_cpuinfo(text: str, architecture: str, cores: int) -> Processor:
    """Read Linux's /proc/cpuinfo; its first processor stands for all."""
    facts: dict[str, str] = {}
    for line in text.splitlines():
        key, _, value = line.partition(":")
        facts.setdefault(key.strip().lower(), value.strip())
    words = set(facts.get("flags", facts.get("features", "")).lower().split())
    return Processor(
        name=facts.get("model name") or _arm_name(facts) or architecture,
        architecture=architecture,
        system="Linux",
        cores=cores,
        instructions=_named(_sets_of(architecture), words),
        unreported=frozenset() if words else frozenset(_sets_of(architecture)),
    )


def from_sysctl(text: str, architecture: str, cores: int) -> Processor:
    """Read macOS's `sysctl machdep.cpu hw.optional`: words on x86, a line `name: 1` for each set on ARM."""
    facts = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in text.splitlines())}
    words = set(
        f"{facts.get('machdep.cpu.features', '')} {facts.get('machdep.cpu.leaf7_features', '')}".split()
    )
    words |= {key.rpartition(".")[2] for key, value in facts.items() if value == "1"}
    return Processor(
        name=facts.get("machdep.cpu.brand_string") or architecture,
        architecture=architecture,
        system="Darwin",
        cores=cores,
        instructions=_named(_sets_of(architecture), {word.lower() for word in words}),
        unreported=frozenset() if words else frozenset(_sets_of(architecture)),
    )


def from_windows(name: str, features: Collection[int], architecture: str, cores: int) -> Processor:
    """Read Windows: the name in the registry and the numbers that IsProcessorFeaturePresent affirms."""
    sets = _sets_of(architecture)
    numbers = WINDOWS_ARM if sets is ARM_SETS else WINDOWS_X86
    return Processor(
        name=name or architecture,
        architecture=architecture,
        system="Windows",
        cores=cores,
        instructions=frozenset(known for known, number in numbers.items() if number in features),
        unreported=frozenset(sets) - frozenset(numbers),
    )


def usable_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def has_gpu_driver() -> bool:
    """Tell whether the driver of an NVIDIA or AMD GPU is there; only torch knows whether it can be used."""
    if Path("/dev/kfd").exists():
        return True
    try:
        ctypes.CDLL("nvcuda.dll" if os.name == "nt" else "libcuda.so.1")
    except OSError:
        return False
    return True


def memory_bytes() -> int:
    """The machine's memory."""
    import psutil

    return int(psutil.virtual_memory().total)


def peak_memory_bytes() -> int:
    """The most memory that this process has held so far."""
    if sys.platform == "win32":
        import psutil

        return int(psutil.Process().memory_info().peak_wset)
    for line in _read(Path("/proc/self/status")).splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _sets_of(architecture: str) -> Mapping[str, tuple[str, ...]]:
    is_arm = Processor(name="", architecture=architecture, system="", cores=1).is_arm
    return ARM_SETS if is_arm else X86_SETS


def _named(sets: Mapping[str, tuple[str, ...]], words: Collection[str]) -> frozenset[str]:
    return frozenset(name for name, aliases in sets.items() if any(alias in words for alias in aliases))


def _arm_name(facts: Mapping[str, str]) -> str | None:
    try:
        numbers = int(facts["cpu implementer"], 16), int(facts["cpu part"], 16)
    except (KeyError, ValueError):
        return None
    return ARM_NAMES.get(numbers, "ARM implementer {:#x}, part {:#x}".format(*numbers))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _sysctl() -> str:
    try:
        done = subprocess.run(
            ["sysctl", "machdep.cpu", "hw.optional"], capture_output=True, text=True, timeout=10, check=False
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def _registry_name() -> str:
    # Typed as Any: these modules exist on Windows alone.
    winreg: Any = __import__("winreg")
    try:
        with winreg.OpenKey(
            winreg.HKEY_LOCAL_MACHINE, r"HARDWARE\DESCRIPTION\System\CentralProcessor\0"
        ) as key:
            return str(winreg.QueryValueEx(key, "ProcessorNameString")[0]).strip()
    except OSError:
        return platform.processor()


def _windows_features() -> frozenset[int]:
    import ctypes

    kernel: Any = ctypes.windll.kernel32  # type: ignore[attr-defined]
    numbers = {*WINDOWS_X86.values(), *WINDOWS_ARM.values()}
    return frozenset(number for number in numbers if kernel.IsProcessorFeaturePresent(number))
