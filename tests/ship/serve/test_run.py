"""bermo serve as a process: it answers, finishes what it took on SIGTERM, and ends with 0."""

import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection
from pathlib import Path

import pytest
import uvicorn
from starlette.testclient import TestClient

from bermo.cli import main
from bermo.errors import BermoError
from bermo.ship.serve.address import listen, served_name, take_address
from bermo.ship.serve.app import Server
from bermo.ship.serve.run import _stopper
from bermo.ship.serve.spec import ServeSpec
from tests.ship.folders import make_model, save

BODY = b'{"texts": ["a good film", "the bad cats"]}'
HEADERS = {"Content-Type": "application/json"}
THREADS = 4


@pytest.mark.skipif(os.name != "posix", reason="Windows has no SIGTERM that a process can catch")
@pytest.mark.usefixtures("warm_python")
def test_sigterm_loses_no_answer_and_ends_with_0(tmp_path: Path) -> None:
    save(make_model(), tmp_path / "tiny")
    command = [sys.executable, "-m", "bermo", "serve", str(tmp_path / "tiny"), "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        port = _port(process)
        statuses: list[int] = []
        clients = [threading.Thread(target=_ask_until_503, args=(port, statuses)) for _ in range(THREADS)]
        for client in clients:
            client.start()
        while len(statuses) < 20 and any(client.is_alive() for client in clients):
            time.sleep(0.01)
        process.send_signal(signal.SIGTERM)
        for client in clients:
            client.join(30)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()
    # A request that was lost would have raised in its thread, and left no status.
    assert statuses.count(503) == THREADS
    assert set(statuses) == {200, 503}


def _port(process: "subprocess.Popen[str]") -> int:
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"Serving tiny on http://127\.0\.0\.1:(\d+)", line):
            return int(found[1])
    raise AssertionError("the server did not start")


def _ask_until_503(port: int, statuses: list[int]) -> None:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    status = 0
    while status != 503:
        connection.request("POST", "/predict", BODY, HEADERS)
        answer = connection.getresponse()
        answer.read()
        status = answer.status
        statuses.append(status)
    connection.close()


def test_what_cannot_be_served_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for place in ("a", "b"):
        save(make_model(), tmp_path / place / "tiny")
    one, two = (str(tmp_path / place / "tiny") for place in ("a", "b"))
    taken = socket.create_server(("127.0.0.1", 0))
    port = str(taken.getsockname()[1])
    for words, sentence in {
        (one, two): 'would both be served as "tiny"',
        (one, "--port", port): f"bermo cannot listen on 127.0.0.1:{port}",
        (one, "--host", "203.0.113.1"): "bermo cannot listen on 203.0.113.1:8000",
        (one, "--max-texts", "9", "--queue", "8"): "never fits where 8 may wait",
        (str(tmp_path),): "holds no model",
    }.items():
        assert main(["serve", *words]) == 2
        assert sentence in capsys.readouterr().err
    taken.close()


def test_of_two_servers_that_take_an_address_at_once_one_is_refused() -> None:
    with take_address(ServeSpec(port=0)) as first:
        spec = ServeSpec(port=first.getsockname()[1])
        with pytest.raises(BermoError, match="Choose another --host or --port"):
            _listen_beside(first, spec)


def _listen_beside(first: socket.socket, spec: ServeSpec) -> None:
    with take_address(spec) as second:
        listen(first, spec)
        listen(second, spec)


def test_a_model_is_served_by_the_name_that_was_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "third" / "inside").mkdir(parents=True)
    (tmp_path / "current").symlink_to("third")
    monkeypatch.chdir(tmp_path / "third" / "inside")
    names = {str(path): served_name(path) for path in map(Path, (tmp_path / "current", ".", ".."))}
    assert names == {str(tmp_path / "current"): "current", ".": "inside", "..": "third"}


def test_a_second_signal_ends_the_server_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    codes: list[int] = []
    monkeypatch.setattr("os._exit", codes.append)
    server = Server([], ServeSpec())
    stop = _stopper(server, uvicorn.Server(uvicorn.Config(server.app())))
    stop(signal.SIGTERM, None)
    assert (server.is_stopping, codes) == (True, [])
    stop(signal.SIGINT, None)
    assert codes == [128 + signal.SIGINT]


def test_the_line_that_says_where_comes_once_signals_are_taken() -> None:
    server, is_known = Server([], ServeSpec()), list[bool]()
    with TestClient(server.app(lambda: is_known.append(server.loop is not None))):
        assert is_known == [True]


def test_without_its_packages_the_extra_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bermo.verbs.serve.PACKAGES", ("starlette", "no_such_package"))
    assert main(["serve", str(tmp_path)]) == 2
    assert 'pip install "bermo[serve]"' in capsys.readouterr().err
