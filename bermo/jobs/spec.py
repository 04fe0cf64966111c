"""Where the runs of an experiment are started, as options of a command."""

from dataclasses import dataclass
from typing import Literal

from bermo.fields import Rules, option

Engine = Literal["local", "ray", "slurm"]
ENGINES_OF: dict[str, tuple[Engine, ...]] = {
    "workers": ("local",),
    "gpus": ("local",),
    "address": ("ray",),
    "gpus_per_run": ("ray", "slurm"),
    "partition": ("slurm",),
    "hours": ("slurm",),
}
"""The engines that each option is for."""


@dataclass(frozen=True, kw_only=True)
class SpreadSpec:
    """Which engine starts the runs, and with what; None is this process, one run after the other."""

    on: Engine | None = option(None, "start the runs side by side, as jobs: on this machine or a cluster")
    retries: int = option(2, "how often a run that failed is called again", least=0)
    workers: int | None = option(
        None, "local: runs at a time", shown="one a GPU, else one a core", least=1, most=1024
    )
    gpus: tuple[int, ...] | None = option(None, "local: these GPUs, each for one run at a time", least=0)
    address: str | None = option(
        None, "ray: of the cluster; auto is the one of this machine", shown="started and ended here"
    )
    gpus_per_run: float | None = option(
        None, "ray and slurm: GPUs of a run; ray takes parts too", shown="1, if there are GPUs", least=0
    )
    partition: str | None = option(None, "slurm: partition of the jobs")
    hours: float | None = option(None, "slurm: after so many a job is requeued, and goes on", over=0)

    def rules(self) -> Rules:
        rules: Rules = []
        for name, engines in ENGINES_OF.items():
            is_right = getattr(self, name) is None or self.on in engines
            flag, known = name.replace("_", "-"), " or ".join(engines)
            rules.append((is_right, f"--{flag} belongs to --on {known}. Leave it out, or add that."))
        is_whole = self.on != "slurm" or (self.partition is not None and self.hours is not None)
        rules.append((is_whole, "--on slurm needs --partition and --hours."))
        return rules
