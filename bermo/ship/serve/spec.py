"""How models are served: where, how much at a time, and what a request may ask for."""

from dataclasses import dataclass

from bermo.choices import DEVICE_HELP, Device, device_rules
from bermo.fields import Rules, option
from bermo.machine import usable_cores

MOST_THREADS = 1024


@dataclass(frozen=True, kw_only=True)
class ServeSpec:
    """Address, batches, and the limits of a request; every limit is one for the whole server."""

    host: str = option("127.0.0.1", "address to listen on; 0.0.0.0: all of this machine", metavar="ADDRESS")
    port: int = option(8000, "port to listen on; 0: any that is free", least=0, most=65535)
    batch_size: int = option(16, "texts that a model reads at a time", least=1)
    queue: int = option(1024, "texts that may wait for a model; what comes then gets status 429", least=1)
    timeout: float = option(30.0, "seconds after which a request that waits gets status 504", over=0)
    max_texts: int = option(256, "texts of a request", least=1)
    max_characters: int = option(20_000, "characters of a text", least=1)
    max_bytes: int = option(2_000_000, "bytes of a request", least=1)
    threads: int | None = option(
        None, "threads that each model computes in", least=1, most=MOST_THREADS, shown="all cores"
    )
    device: Device = option("auto", DEVICE_HELP)

    @property
    def num_threads(self) -> int:
        """Threads that were asked for, or one for each core."""
        return self.threads or usable_cores()

    def rules(self) -> Rules:
        return [
            (
                self.max_texts <= self.queue,
                f"A request of {self.max_texts} texts (--max-texts) never fits where {self.queue} may wait"
                " (--queue). Make the first smaller or the second larger.",
            ),
            *device_rules(self.device),
        ]
