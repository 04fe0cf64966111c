"""How a density falls over a training: the cubic schedule of gradual pruning (Zhu & Gupta 2017)."""

from dataclasses import dataclass

from bermo.errors import BermoError


@dataclass(frozen=True, kw_only=True)
class CubicSchedule:
    """From an initial to a final value along a cubic; constant before and after it.

    v(step) = initial                            until a·w, w = warmup_steps
              final + (initial − final)·m³       m = 1 − (step − a·w)/(T − (a + c)·w), T = total_steps
              final                              after T − c·w

        >>> schedule = bermo.CubicSchedule(total_steps=100, warmup_steps=10)
        >>> [round(schedule.value(step, 1.0, 0.1), 2) for step in (0, 30, 50, 100)]
        [1.0, 0.48, 0.21, 0.1]
    """

    total_steps: int
    warmup_steps: int
    initial_warmup: int = 1
    final_warmup: int = 1

    def __post_init__(self) -> None:
        for name in ("warmup_steps", "initial_warmup", "final_warmup"):
            if (value := getattr(self, name)) < 0:
                raise BermoError(f"{name} must be 0 or more, but got {value}.")
        needed = (self.initial_warmup + self.final_warmup) * self.warmup_steps
        if self.total_steps <= needed:
            raise BermoError(
                f"The pruning schedule has no room: its {self.initial_warmup} + {self.final_warmup} warm-ups"
                f" of {self.warmup_steps} steps fill {needed} steps, but the training has {self.total_steps}."
                f" Train for more than {needed} steps, or make the warm-up shorter."
            )

    @property
    def first_step(self) -> int:
        """The last step before anything is pruned."""
        return self.initial_warmup * self.warmup_steps

    @property
    def last_step(self) -> int:
        """The step from which on the final value holds."""
        return self.total_steps - self.final_warmup * self.warmup_steps

    def value(self, step: int, initial: float, final: float) -> float:
        """Return the value at a step."""
        if step < self.first_step:
            return initial
        if step > self.last_step:
            return final
        left = 1 - (step - self.first_step) / (self.last_step - self.first_step)
        return final + (initial - final) * left**3


@dataclass(frozen=True, kw_only=True)
class RoundSchedule:
    """From an initial to a final value in equal jumps, one at the end of each round; one more round follows.

    v(step) = initial + (final − initial) · k/rounds,   k = the rounds that are over at the step
    """

    total_steps: int
    rounds: int

    def __post_init__(self) -> None:
        if self.total_steps <= self.rounds:
            raise BermoError(
                f"Pruning in {self.rounds} rounds needs more than {self.rounds} steps, but the training has"
                f" {self.total_steps}. Train for longer, or in fewer rounds."
            )

    @property
    def jumps(self) -> tuple[int, ...]:
        """The first step of each round but the first."""
        return tuple(self.total_steps * k // (self.rounds + 1) for k in range(1, self.rounds + 1))

    @property
    def first_step(self) -> int:
        """The last step before anything is pruned."""
        return self.jumps[0] - 1

    @property
    def last_step(self) -> int:
        """The step from which on the final value holds: masks are set before a step."""
        return self.jumps[-1] + 1

    def value(self, step: int, initial: float, final: float) -> float:
        """Return the value at a step."""
        over = sum(step >= jump for jump in self.jumps)
        return initial + (final - initial) * over / self.rounds


Schedule = CubicSchedule | RoundSchedule
