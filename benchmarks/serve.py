"""bermo serve under load: requests a second and latencies beside a naive server, a stop, and too much.

    python benchmarks/serve.py FOLDER --texts sst2.txt [--clients 64] [--seconds 10] [--minutes 10] \\
        [--name "gte-small, torch" --out results/serve.json]

FOLDER is an export for onnxruntime, or a run or model of torch; texts are one a line. Each request holds one
text and goes over a real connection to a server in a process of its own:
  naive     Starlette and uvicorn too, but one request is one call of the model, in the pool of threads that
            Starlette has for this
  bermo     bermo serve
  stop      SIGTERM in the middle of the load: every request that was sent has an answer (200 or 503)
  twice     twice the requests a second that bermo serve answered: which are answered, which refused with 429,
            how long they take, how the memory grows; --minutes long
The file of --out keeps one entry a name, with the processor; others in it stay. Measure on an idle machine:
the client takes a part of the processor too.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
import psutil

ROOT = Path(__file__).parents[1]
LOST = 0
"""The status of a request that was sent and never answered."""
OPEN_CONNECTIONS = 2000
STARTED_WITHIN = 120.0


@dataclass
class Load:
    """What came of the requests of one test."""

    statuses: Counter[int] = field(default_factory=Counter)
    seconds: list[float] = field(default_factory=list)
    """Of those that were answered with 200."""
    over: float = 0.0
    """Seconds that the test took."""
    busy: float = 0.0
    """Seconds that the server's processor worked for it, all cores together."""

    def count(self, status: int, seconds: float) -> None:
        """Count a request."""
        self.statuses[status] += 1
        if status == 200:
            self.seconds.append(seconds)

    @property
    def rate(self) -> float:
        """Answers a second."""
        return len(self.seconds) / self.over

    def facts(self) -> dict[str, object]:
        """Return what is shown and kept."""
        p50, p99 = np.percentile(self.seconds, [50, 99]) if self.seconds else (0.0, 0.0)
        return {
            "answers_per_second": round(self.rate, 1),
            "p50_ms": round(1000 * float(p50), 1),
            "p99_ms": round(1000 * float(p99), 1),
            "processor_ms_per_answer": round(1000 * self.busy / max(1, len(self.seconds)), 2),
            "statuses": {str(status): count for status, count in sorted(self.statuses.items()) if status},
            "lost": self.statuses[LOST],
        }


class Client:
    """One connection at a time, opened again where the server closes it."""

    def __init__(self, port: int, path: str) -> None:
        self.port, self.path = port, path
        self.streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, text: str) -> int:
        """Send a text and return the status; LOST where none came. ConnectionRefusedError: none was sent."""
        if self.streams is not None and self.streams[0].at_eof():
            # A server closes connections that were idle for long; every client looks before it asks again.
            self.close()
        if self.streams is None:
            self.streams = await asyncio.open_connection("127.0.0.1", self.port)
        reader, writer = self.streams
        body = json.dumps({"text": text}).encode()
        head = f"POST {self.path} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        try:
            writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
            answer = (await reader.readuntil(b"\r\n\r\n")).lower()
            await reader.readexactly(int(answer.partition(b"content-length:")[2].split(b"\r", 1)[0]))
        except (OSError, EOFError):
            self.close()
            return LOST
        if b"connection: close" in answer:
            self.close()
        return int(answer.split(b" ", 2)[1])

    def close(self) -> None:
        """Close the connection, if there is one."""
        if self.streams is not None:
            self.streams[1].close()
        self.streams = None


async def closed_loop(port: int, path: str, texts: Sequence[str], clients: int, seconds: float) -> Load:
    """Let each client send its next text when it has its answer; a server that is gone ends the test."""
    load, words, started = Load(), cycle(texts), time.perf_counter()

    async def one() -> None:
        client = Client(port, path)
        while time.perf_counter() < started + seconds:
            sent = time.perf_counter()
            try:
                status = await client.ask(next(words))
            except OSError:
                return
            load.count(status, time.perf_counter() - sent)
            if status == 503:
                return
        client.close()

    await asyncio.gather(*(one() for _ in range(clients)))
    load.over = time.perf_counter() - started
    return load


async def open_loop(port: int, path: str, texts: Sequence[str], rate: float, seconds: float) -> Load:
    """Send so many texts a second, whatever comes back."""
    load, words, started = Load(), cycle(texts), time.perf_counter()
    idle: list[Client] = []
    tasks: set[asyncio.Task[None]] = set()

    async def one(text: str) -> None:
        client = idle.pop() if idle else Client(port, path)
        sent = time.perf_counter()
        load.count(await client.ask(text), time.perf_counter() - sent)
        idle.append(client)

    sent = 0
    while (now := time.perf_counter() - started) < seconds:
        while sent < now * rate and len(tasks) < OPEN_CONNECTIONS:
            tasks.add(task := asyncio.create_task(one(next(words))))
            task.add_done_callback(tasks.discard)
            sent += 1
        await asyncio.sleep(0.002)
    await asyncio.gather(*tasks)
    load.over = time.perf_counter() - started
    for client in idle:
        client.close()
    return load


async def stopped(port: int, path: str, texts: Sequence[str], clients: int, process: int) -> Load:
    """Send SIGTERM to the server after a second of load."""
    running = asyncio.create_task(closed_loop(port, path, texts, clients, 60.0))
    await asyncio.sleep(1.0)
    os.kill(process, signal.SIGTERM)
    return await running


@contextmanager
def server(words: Sequence[str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Start a server and wait until it answers; end it if it has not ended."""
    process = subprocess.Popen([sys.executable, *words], env=os.environ | {"PYTHONPATH": str(ROOT)})
    try:
        until = time.monotonic() + STARTED_WITHIN
        while not _is_up(port):
            if process.poll() is not None or time.monotonic() > until:
                sys.exit(f"The server did not start: {' '.join(words)}")
            time.sleep(0.2)
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
        process.wait(60)


def _is_up(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/health", timeout=1) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def run_naive(folder: Path, port: int) -> None:
    """Serve a model as most first servers do: tokenise and compute where the request comes."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.concurrency import run_in_threadpool
    from starlette.requests import Request
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    answer = _onnx_answers(folder) if (folder / "model.onnx").exists() else _torch_answers(folder)

    async def ask(request: Request) -> JSONResponse:
        values = await request.json()
        return JSONResponse({"answers": [await run_in_threadpool(answer, values["text"])]})

    async def health(_: Request) -> JSONResponse:
        return JSONResponse({"status": "ok"})

    routes = [
        Route("/health", health),
        *(Route(path, ask, methods=["POST"]) for path in ("/predict", "/embed")),
    ]
    uvicorn.run(Starlette(routes=routes), port=port, http="h11", log_level="error", access_log=False)


def _onnx_answers(folder: Path) -> Callable[[str], list[float]]:
    import onnxruntime
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"))
    names = [item.name for item in session.get_inputs()]

    def answer(text: str) -> list[float]:
        encoded = tokenizer.encode(text)
        known = {
            "input_ids": encoded.ids,
            "attention_mask": encoded.attention_mask,
            "token_type_ids": encoded.type_ids,
        }
        (outputs, *_) = session.run(None, {name: np.array([known[name]]) for name in names})
        return list(map(float, outputs[0]))

    return answer


def _torch_answers(folder: Path) -> Callable[[str], list[float]]:
    import torch

    from bermo.runs.trained import open_trained

    opened = open_trained(folder)
    tokenizer, model = opened.load_tokenizer(), opened.load_model()

    @torch.inference_mode()
    def answer(text: str) -> list[float]:
        encoded = tokenizer(text, truncation=True, return_tensors="pt")
        return list(map(float, model(**encoded).to_tuple()[0][0]))

    return answer


def path_of(folder: Path) -> str:
    """Return the path that a model answers on."""
    from bermo.runs.trained import open_trained

    return "/embed" if open_trained(folder).trained.task.kind == "embedding" else "/predict"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--name", help="of the entry in --out; else the folder's")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--naive", type=int, metavar="PORT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.naive is not None:
        run_naive(given.folder, given.naive)
        return
    found = measure(given)
    print(json.dumps(found, indent=1))
    if given.out is not None:
        keep(given.out, given.name or given.folder.name, found)


def keep(path: Path, name: str, found: dict[str, object]) -> None:
    """Put what was measured into a file of results, under a name."""
    known = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    path.write_text(json.dumps(known | {name: found}, indent=1) + "\n", encoding="utf-8")


def measure(given: argparse.Namespace) -> dict[str, object]:
    """Run the four tests."""
    from bermo.machine import processor

    texts = given.texts.read_text(encoding="utf-8").splitlines()
    path, port = path_of(given.folder), free_port()
    with server([__file__, str(given.folder), "--naive", str(port)], port) as process:
        naive = _timed(process, closed_loop(port, path, texts, given.clients, given.seconds))
    ours = ["-m", "bermo", "serve", str(given.folder), "--port", str(port)]
    with server(ours, port) as process:
        load = _timed(process, closed_loop(port, path, texts, given.clients, given.seconds))
        stop = asyncio.run(stopped(port, path, texts, given.clients, process.pid))
        code = process.wait(60)
    with server(ours, port) as process:
        used = psutil.Process(process.pid)
        _timed(process, closed_loop(port, path, texts, given.clients, 2.0))
        before = used.memory_info().rss
        twice = _timed(process, open_loop(port, path, texts, 2 * load.rate, 60 * given.minutes))
        after = used.memory_info().rss
    return {
        "processor": f"{processor().name}, {processor().cores} cores",
        "clients": given.clients,
        "naive": naive.facts(),
        "bermo": load.facts(),
        "times_naive": round(load.rate / naive.rate, 2),
        "stop": stop.facts() | {"exit_code": code},
        "twice": twice.facts()
        | {"minutes": given.minutes, "mb_before": before // 2**20, "mb_after": after // 2**20},
    }


def _timed(process: subprocess.Popen[bytes], test: Coroutine[Any, Any, Load]) -> Load:
    """Run a test, and note how long the server's processor worked for it."""
    before = psutil.Process(process.pid).cpu_times()
    load = asyncio.run(test)
    after = psutil.Process(process.pid).cpu_times()
    load.busy = after.user + after.system - before.user - before.system
    return load


if __name__ == "__main__":
    main()
