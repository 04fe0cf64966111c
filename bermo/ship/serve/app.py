"""The server as an ASGI application: its paths, and a status and a sentence for everything else.

    POST /predict  /embed                             answers or vectors
    GET  /models  /health  /metrics  /openapi.json    what is served, and how it fares
    GET  /                                            a page to try it

While the server stops, what was taken is finished, and what comes is refused with 503, each on a connection
that is then closed.
"""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from bermo.errors import nearest
from bermo.ship.serve.asked import Asked, read_asked
from bermo.ship.serve.batcher import Answers, Batcher
from bermo.ship.serve.metrics import CONTENT_TYPE, Metrics, ModelMetrics
from bermo.ship.serve.model import ServedModel
from bermo.ship.serve.openapi import describe
from bermo.ship.serve.refused import Refused
from bermo.ship.serve.spec import ServeSpec

PAGE = Path(__file__).with_name("page.html")
PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline';"
    " connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
}
DROPPED = 50_000_000
"""Bytes of a body that is too large which are read, and forgotten, before it is refused."""
OF_VECTORS, OF_ANSWERS = "/embed", "/predict"
Handle = Callable[[Request], Awaitable[Response]]
MOST_HEADERS = 16_384
"""Bytes of a request's first line and headers. h11 refuses more that come in pieces, but not in one."""
UNFORESEEN = "The server failed at this request. Its log says why."


class Server:
    """The models, their queues, and whether new requests are taken."""

    def __init__(self, models: Sequence[ServedModel], spec: ServeSpec) -> None:
        self.spec, self.models = spec, {model.about.name: model for model in models}
        known = {name: ModelMetrics(name) for name in self.models}
        self.metrics = Metrics(tuple(known.values()))
        self.batchers = {
            name: Batcher(model.answer, spec, known[name], model.num_workers)
            for name, model in self.models.items()
        }
        self.is_stopping, self.num_open = False, 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.started: Callable[[], None] = lambda: None

    def stop(self, end: Callable[[], None], seconds: float) -> None:
        """Take no more requests, and call `end` some seconds later; may be called by a signal."""
        self.is_stopping = True
        if self.loop is not None:
            self.loop.call_soon_threadsafe(self.loop.call_later, seconds, end)

    def app(self, started: Callable[[], None] = lambda: None) -> Starlette:
        """Return the application that a server of ASGI runs; it calls `started` once it takes signals."""
        self.started = started
        get = {"/": self._page, "/models": self._list, "/health": self._health, "/metrics": self._metrics}
        post = {OF_ANSWERS: self._ask, OF_VECTORS: self._ask}
        routes = [
            *(Route(path, self._counted(path, handle), methods=["GET"]) for path, handle in get.items()),
            Route("/openapi.json", self._counted("/openapi.json", self._describe), methods=["GET"]),
            *(Route(path, self._counted(path, handle), methods=["POST"]) for path, handle in post.items()),
        ]
        handlers: dict[Any, Any] = {HTTPException: self._unknown, Exception: self._failed}
        return Starlette(routes=routes, lifespan=self._running, exception_handlers=handlers)

    @asynccontextmanager
    async def _running(self, _: Starlette) -> AsyncIterator[None]:
        """Run each model's task while the application runs."""
        self.loop = asyncio.get_running_loop()
        tasks = [asyncio.create_task(batcher.work()) for batcher in self.batchers.values()]
        self.started()  # signals are taken by the server from here on
        yield
        for task, batcher in zip(tasks, self.batchers.values(), strict=True):
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            batcher.threads.shutdown()

    def _counted(self, path: str, handle: Handle) -> Handle:
        """Return `handle` with errors as JSON, counted by its path and status."""

        async def handled(request: Request) -> Response:
            started, status = time.perf_counter(), 500
            self.num_open += 1
            try:
                response = await self._answered(handle, request)
                status = response.status_code
            finally:
                self.num_open -= 1
                self.metrics.count_request(path, status, time.perf_counter() - started)
            return self._closing(response)

        return handled

    async def _answered(self, handle: Handle, request: Request) -> Response:
        try:
            _check_headers(request)
            return await handle(request)
        except Refused as refusal:
            return _failure(refusal.status, str(refusal), refusal.headers)

    def _closing(self, response: Response) -> Response:
        if self.is_stopping:
            response.headers["Connection"] = "close"
        return response

    async def _unknown(self, request: Request, error: HTTPException) -> Response:
        """Answer a path that there is not, or one that is asked in another way."""
        self.metrics.count_request("other", error.status_code, 0.0)
        headers = dict(error.headers or {})
        if error.status_code == 405:
            allowed = sorted(set(headers.get("Allow", "").split(", ")))
            sentence = f"This path takes {' and '.join(allowed)} alone."
        else:
            sentence = "There is no such path. GET /openapi.json lists them all."
        return self._closing(_failure(error.status_code, sentence, headers))

    async def _failed(self, _: Request, __: Exception) -> Response:
        """Answer where the code is wrong; the server's log has the traceback."""
        return self._closing(_failure(500, UNFORESEEN))

    async def _ask(self, request: Request) -> Response:
        self._check_open()
        asked = read_asked(await self._body(request), self.spec)
        model = self._model(asked, request.url.path)
        model.check(asked)
        answers = await self.batchers[model.about.name].ask(asked)
        return _json(_named(model, asked, answers))

    def _check_open(self) -> None:
        if self.is_stopping:
            raise Refused(503, "The server is stopping. Ask another one.", {"Retry-After": "1"})
        # Each has at least one text, so more could not all wait; their bodies are not read.
        if self.num_open > self.spec.queue + self.spec.max_texts:
            raise Refused(429, "Too many requests are open. Try again later.", {"Retry-After": "1"})

    async def _body(self, request: Request) -> bytes:
        """Return the body; no more is kept than may be sent, nor read for longer than a request may take.

        Of one that is too large some more is read: the system resets a connection that is closed before all
        that came was read, and a client that was still sending would never read the answer.
        """
        _check_type(request.headers.get("content-type", ""))
        body, size = bytearray(), 0
        try:
            async with asyncio.timeout(self.spec.timeout):
                async for part in request.stream():
                    size += len(part)
                    if size <= self.spec.max_bytes:
                        body += part
                    elif size > self.spec.max_bytes + DROPPED:
                        break
        except ClientDisconnect:
            raise Refused(400, "The connection ended before the body did.") from None
        except TimeoutError:
            raise Refused(
                408,
                f"The body did not come within {self.spec.timeout:g} s. Send it again.",
                {"Connection": "close"},
            ) from None
        if size > self.spec.max_bytes:
            raise Refused(
                413,
                f"A request may have {self.spec.max_bytes:,} bytes. Send several.",
                {"Connection": "close"},
            )
        return bytes(body)

    def _model(self, asked: Asked, path: str) -> ServedModel:
        """Return the model that was named, or the only one that answers on this path."""
        fitting = {
            n: model for n, model in self.models.items() if model.gives_vectors == (path == OF_VECTORS)
        }
        if asked.model is None and len(fitting) == 1:
            return next(iter(fitting.values()))
        if not fitting:
            other = OF_ANSWERS if path == OF_VECTORS else OF_VECTORS
            raise Refused(400, f"No model here answers on {path}. Send the request to {other}.")
        if asked.model is None:
            raise Refused(400, f'Several models answer on {path}: name one in "model": {", ".join(fitting)}.')
        if asked.model not in self.models:
            raise Refused(404, f"There is no such model.{nearest(asked.model, self.models)}")
        if asked.model not in fitting:
            raise Refused(400, f'"{asked.model}" does not answer on {path}.{nearest("", fitting)}')
        return fitting[asked.model]

    async def _list(self, _: Request) -> Response:
        return _json({"models": [asdict(model.about) for model in self.models.values()]})

    async def _health(self, _: Request) -> Response:
        if self.is_stopping:
            return _json({"status": "stopping"}, 503)
        return _json({"status": "ok"})

    async def _metrics(self, _: Request) -> Response:
        waiting = {name: batcher.num_texts for name, batcher in self.batchers.items()}
        return Response(self.metrics.text(waiting), headers={"Content-Type": CONTENT_TYPE})

    async def _describe(self, _: Request) -> Response:
        return _json(describe(self.spec))

    async def _page(self, _: Request) -> Response:
        return HTMLResponse(PAGE.read_text(encoding="utf-8"), headers=PAGE_HEADERS)


def _named(model: ServedModel, asked: Asked, answers: Answers) -> dict[str, Any]:
    return {"model": model.about.name, "vectors" if model.gives_vectors else "answers": answers}


def _check_headers(request: Request) -> None:
    sizes = (len(name) + len(value) for name, value in request.headers.raw)
    if len(str(request.url)) + sum(sizes) > MOST_HEADERS:
        raise Refused(431, f"Address and headers may have {MOST_HEADERS:,} bytes. Send shorter ones.")


def _check_type(given: str) -> None:
    """Refuse a body that does not say it is JSON: a form on another site's page cannot say so."""
    kind = given.partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Refused(415, 'Send JSON with the header "Content-Type: application/json".')


_dump = partial(json.dumps, ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def _json(values: Any, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    return Response(_dump(values), status, headers, media_type="application/json")


def _failure(status: int, sentence: str, headers: dict[str, str] | None = None) -> Response:
    return _json({"error": sentence}, status, headers)
