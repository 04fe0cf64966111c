"""A model hub on this machine that speaks the few calls of an upload, and keeps what it was sent."""

import base64
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = "hf_good"
LARGE = 4000
"""Files of so many bytes go the way of large ones."""


@dataclass
class Hub:
    """What the hub knows and was asked: repositories with who may see them, files, calls."""

    url: str = ""
    visible: dict[str, str] = field(default_factory=dict)
    files: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    calls: list[str] = field(default_factory=list)
    breaks_at: str | None = None
    """The connection breaks at a call that has this word in its path."""
    refuses: dict[str, int] = field(default_factory=dict)
    """The status of calls that have a word in their path."""


class Handler(BaseHTTPRequestHandler):
    """Answers as the hub does; `hub` is set on the class that serves it."""

    hub: Hub

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = self.path.partition("?")[0]
        self.hub.calls.append(f"{self.command} {path}")
        if self.hub.breaks_at is not None and self.hub.breaks_at in path:
            self.close_connection = True
            self.connection.close()
            return
        status = next((code for word, code in self.hub.refuses.items() if word in path), None)
        if status is None and self.headers.get("Authorization") != f"Bearer {TOKEN}" and "/put/" not in path:
            status = 401
        if status is None:
            self._say(200, self._reply(path, body))
        else:
            self._say(status, {"error": "refused"})

    def _say(self, status: int, values: Any) -> None:
        data = json.dumps(values).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def _reply(self, path: str, body: bytes) -> Any:
        hub = self.hub
        if path == "/api/repos/create":
            asked = json.loads(body)
            name = f"{asked['organization']}/{asked['name']}"
            hub.visible.setdefault(name, asked.get("visibility", "public"))
            return {"url": f"{hub.url}/{name}", "name": name}
        if path == "/api/validate-yaml":
            return {"errors": [], "warnings": []}
        if "/preupload/" in path:
            named = json.loads(body)["files"]
            kinds = ("lfs" if item["size"] >= LARGE else "regular" for item in named)
            pairs = zip(named, kinds, strict=True)
            return {
                "files": [{"path": item["path"], "uploadMode": k, "shouldIgnore": False} for item, k in pairs]
            }
        if path.endswith("/objects/batch"):
            objects = json.loads(body)["objects"]
            links = [{"upload": {"href": f"{hub.url}/put/{item['oid']}"}} for item in objects]
            return {"objects": [item | {"actions": link} for item, link in zip(objects, links, strict=True)]}
        if path.startswith("/put/"):
            hub.blobs[path.removeprefix("/put/")] = body
            return {}
        if "/commit/" in path:
            self._keep([json.loads(line) for line in body.splitlines()])
            name = path.removeprefix("/api/models/").partition("/commit")[0]
            return {"commitUrl": f"{hub.url}/{name}/commit/{'0' * 40}", "commitOid": "0" * 40}
        name = path.removeprefix("/api/models/")
        return {"id": name, "private": hub.visible[name] == "private", "sha": "0" * 40, "siblings": []}

    def _keep(self, lines: list[dict[str, Any]]) -> None:
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                self.hub.files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                self.hub.files[value["path"]] = self.hub.blobs[value["oid"]]

    def log_message(self, *_: Any) -> None:
        """Say nothing."""


@contextmanager
def serving() -> Iterator[Hub]:
    """Serve a hub at a free port."""
    hub = Hub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"hub": hub}))
    hub.url = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
