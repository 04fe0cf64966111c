"""A headless Chromium, driven over a pipe (DevTools protocol) with the standard library alone."""

import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any

CHROMIUM = shutil.which("chromium")
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-extensions",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--remote-debugging-pipe",
)
TYPED = {"Enter": "\r", " ": " "}
# A loaded machine starts a browser slowly.
SECONDS = 40.0


class Browser:
    """One tab; `events` keeps what the page did, `value` asks it."""

    def __init__(self, profile: Path, seconds: float = SECONDS) -> None:
        assert CHROMIUM is not None
        self.seconds = seconds
        to_browser, self.commands = os.pipe()
        self.answers, from_browser = os.pipe()
        # The browser reads its commands from handle 3 and answers on handle 4.
        words = f'exec "$@" 3<&{to_browser} 4>&{from_browser}'
        flags = [*FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self.process = subprocess.Popen(
            ["bash", "-c", words, "bash", CHROMIUM, *flags],
            pass_fds=(to_browser, from_browser),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(to_browser)
        os.close(from_browser)
        self.rest, self.number, self.session = b"", 0, None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> "Browser":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self.commands)
        os.close(self.answers)
        self.process.terminate()
        self.process.wait(SECONDS)

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its answer; events on the way are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        os.write(self.commands, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._read()
            if answer.get("id") == self.number:
                assert "error" not in answer, (method, answer)
                result: dict[str, Any] = answer["result"]
                return result
            self.events.append(answer)

    def _read(self) -> dict[str, Any]:
        until = time.monotonic() + self.seconds
        while b"\0" not in self.rest:
            ready, _, _ = select.select([self.answers], [], [], max(0.0, until - time.monotonic()))
            assert ready, "Chromium does not answer"
            chunk = os.read(self.answers, 1 << 16)
            assert chunk, "Chromium has ended"
            self.rest += chunk
        line, self.rest = self.rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(line)
        return message

    def open(self, page: Path | str, *, width: int = 1400, scheme: str = "light") -> None:
        """Load a page from the disk, or from its address, at that width, on light or dark; wait for it."""
        self.events.clear()
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=900,
            deviceScaleFactor=1,
            mobile=width < 600,
        )
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=features)
        self.call("Page.navigate", url=page.as_uri() if isinstance(page, Path) else page)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._read())

    def value(self, expression: str) -> Any:
        """Return what an expression gives in the page."""
        answer = self.call(
            "Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True, userGesture=True
        )
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and let go of a key."""
        for kind in ("keyDown", "keyUp"):
            text = TYPED.get(key, "") if kind == "keyDown" else ""
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key, text=text, windowsVirtualKeyCode=code
            )

    def complaints(self) -> list[str]:
        """Return what the browser found wrong: exceptions, errors on the console, refused or failed loads."""
        wrong = []
        for event in self.events:
            method, about = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                wrong.append(str(about["exceptionDetails"]))
            elif method == "Log.entryAdded" and about["entry"]["level"] in ("error", "warning"):
                wrong.append(about["entry"]["text"])
            elif method == "Runtime.consoleAPICalled" and about["type"] in ("error", "warning"):
                wrong.append(str(about["args"]))
        return wrong

    def requests(self) -> list[str]:
        """Return the addresses that the page asked for."""
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == "Network.requestWillBeSent"
        ]
