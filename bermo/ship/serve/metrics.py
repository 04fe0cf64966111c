"""What a server counts, in the text that Prometheus reads (exposition format 0.0.4)."""

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
TEXTS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Histogram:
    """How often a value was at most each of the bounds."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds, self.counts, self.sum = bounds, [0] * (len(bounds) + 1), 0.0

    def add(self, value: float) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.sum += value

    def lines(self, name: str, labels: str = "") -> list[str]:
        """Return the lines of Prometheus, the counts of each bound with those below it."""
        found, total = [], 0
        before = f"{labels}," if labels else ""
        for bound, count in zip([*self.bounds, "+Inf"], self.counts, strict=True):
            total += count
            found.append(f'{name}_bucket{{{before}le="{bound}"}} {total}')
        around = f"{{{labels}}}" if labels else ""
        return [*found, f"{name}_sum{around} {self.sum:.6f}", f"{name}_count{around} {total}"]


@dataclass(frozen=True)
class ModelMetrics:
    """What one model did."""

    name: str
    batches: Histogram = field(default_factory=lambda: Histogram(TEXTS))
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def count_batch(self, num_texts: int, seconds: float) -> None:
        """Count texts that were computed together."""
        self.batches.add(num_texts)
        self.seconds.add(seconds)


@dataclass(frozen=True)
class Metrics:
    """What the server did: requests by path and status, and each model's batches."""

    models: tuple[ModelMetrics, ...]
    requests: Counter[tuple[str, int]] = field(default_factory=Counter)
    seconds: Histogram = field(default_factory=lambda: Histogram(SECONDS))

    def count_request(self, path: str, status: int, seconds: float) -> None:
        """Count a request that was answered or refused; `path` is one of ours, never the client's."""
        self.requests[path, status] += 1
        self.seconds.add(seconds)

    def text(self, waiting: dict[str, int]) -> str:
        """Return the page that Prometheus asks for; `waiting` are the texts that wait for each model."""
        parts = [
            *_head("bermo_requests_total", "counter", "Requests by path and status."),
            *(
                f'bermo_requests_total{{path="{path}",status="{status}"}} {count}'
                for (path, status), count in sorted(self.requests.items())
            ),
            *_head("bermo_request_seconds", "histogram", "Seconds from a request to its answer."),
            *self.seconds.lines("bermo_request_seconds"),
            *_head("bermo_waiting_texts", "gauge", "Texts that wait for a model."),
            *(f'bermo_waiting_texts{{model="{_escape(name)}"}} {n}' for name, n in waiting.items()),
            *_head("bermo_batch_texts", "histogram", "Texts that were computed together."),
            *(line for model in self.models for line in model.batches.lines("bermo_batch_texts", _of(model))),
            *_head("bermo_batch_seconds", "histogram", "Seconds of computing them."),
            *(
                line
                for model in self.models
                for line in model.seconds.lines("bermo_batch_seconds", _of(model))
            ),
        ]
        return "\n".join(parts) + "\n"


def _head(name: str, kind: str, help: str) -> list[str]:
    return [f"# HELP {name} {help}", f"# TYPE {name} {kind}"]


def _of(model: ModelMetrics) -> str:
    return f'model="{_escape(model.name)}"'


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
