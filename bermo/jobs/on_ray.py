"""Jobs on a Ray cluster: actors of Ray's core, each with a nursery that keeps torch imported.

Ray places and watches the actors; nothing that we need is kept in Ray. The machines share the disk that the
folders are on.
"""

import logging
import os
import time
from collections import deque
from pathlib import Path
from typing import Any

from bermo.jobs.executor import KILLED, Ended
from bermo.jobs.job import Job
from bermo.jobs.nursery import Nursery

STOPPING_SECONDS = 60.0


class Worker:
    """One run at a time, on one machine of the cluster."""

    def __init__(self, folder: str) -> None:
        os.chdir(folder)
        self.nursery = Nursery()

    def run(self, words: tuple[str, ...], log: str) -> int:
        """Run a command of bermo and return its exit code."""
        self.nursery.start(words, Path(log))
        ended = self.nursery.wait()
        return KILLED if ended is None else ended[1]

    def stop(self) -> None:
        """Let the command save its state and end."""
        self.nursery.stop(self.nursery.started)


class OnRay:
    """As many actors as the cluster has room for; each takes the next job when it has ended one."""

    def __init__(self, address: str | None, gpus_per_run: float | None) -> None:
        # Asked for by the verb before; a machine without it must still be able to import this file.
        import ray

        self.ray = ray
        ray.init(address=address, log_to_driver=False, include_dashboard=False, logging_level=logging.ERROR)
        room = ray.cluster_resources()
        gpus = min(1.0, room.get("GPU", 0.0)) if gpus_per_run is None else gpus_per_run
        self.room = int(room["GPU"] / gpus) if gpus else int(room["CPU"])
        self.make = ray.remote(num_cpus=0 if gpus else 1, num_gpus=gpus, max_concurrency=2)(Worker).remote
        self.free: list[Any] = []
        self.queue: deque[Job] = deque()
        self.running: dict[Any, tuple[Job, Any]] = {}

    def submit(self, job: Job) -> None:
        self.queue.append(job)

    def wait(self, seconds: float) -> Ended | None:
        while self.queue and len(self.running) < self.room:
            worker = self.free.pop() if self.free else self.make(str(Path.cwd()))
            job = self.queue.popleft()
            self.running[worker.run.remote(job.words, str(job.log.absolute()))] = (job, worker)
        if not self.running:
            time.sleep(seconds)
            return None
        ready, _ = self.ray.wait(list(self.running), timeout=seconds)
        return self._end(ready[0]) if ready else None

    def stop(self, job: Job) -> None:
        for running, worker in self.running.values():
            if running == job:
                worker.stop.remote()

    def close(self) -> None:
        for _, worker in self.running.values():
            worker.stop.remote()
        if self.running:
            self.ray.wait(list(self.running), num_returns=len(self.running), timeout=STOPPING_SECONDS)
        self.ray.shutdown()

    def _end(self, future: Any) -> Ended:
        job, worker = self.running.pop(future)
        try:
            code = self.ray.get(future)
        except self.ray.exceptions.RayError:
            # The actor or its machine is gone: another takes its place.
            return Ended(job=job, code=KILLED)
        self.free.append(worker)
        return Ended(job=job, code=code)
