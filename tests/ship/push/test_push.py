"""A shipped model goes to the hub by the hub's own client, whole and alone; all else is one sentence."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from huggingface_hub import constants

from bermo.cli import main
from bermo.encoders.hub import can_ask
from bermo.ship.bench.measured import Bench, Measured, Timing
from bermo.ship.bench.run import write_bench
from bermo.ship.bench.spec import BenchSpec
from bermo.sums import write_sums
from tests.ship.folders import make_model, save
from tests.ship.push.hub import TOKEN, Hub, serving

# The hub's own client calls its HTTP library in a form that this deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as hub:
        # What HF_ENDPOINT, HF_HUB_OFFLINE and HF_HUB_DISABLE_XET set when the library is imported.
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        can_ask.cache_clear()
        yield hub
        can_ask.cache_clear()


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = save(make_model(), tmp_path / "model")
    (folder / "README.md").write_text("---\ntags:\n- bermo\n---\n\n# The card\n")
    write_sums(folder)
    return folder


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join(capsys.readouterr().err.split())


def bench() -> Bench:
    timing = Timing(
        batch=1, length=16, calls=3, p50=1.25, p95=2.0, p99=2.0, rows_per_second=800.0, rounds=(1.25,)
    )
    row = Measured(
        name="small onnx-int8",
        form="onnxruntime",
        precision="int8",
        device="cpu",
        megabytes=3.0,
        peak_memory_mb=50.0,
        score=91.5,
        timings=(timing,),
    )
    return Bench(
        spec=BenchSpec(batches=(1,), lengths=(16,), rounds=1),
        metric="accuracy",
        threads=2,
        machine="a processor of two cores",
        versions={},
        rows=(row,),
    )


def test_every_file_arrives_as_it_is_and_only_its_owner_may_see_it(
    hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(model), "me/films"]) == 0, capsys.readouterr().err
    assert hub.visible == {"me/films": "private"}
    wanted = {path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*.*")}
    assert hub.files == wanted
    assert hub.blobs  # the weights went the way of large files
    assert not [call for call in hub.calls if call.startswith("GET") and "/resolve/" in call]
    assert f"{hub.url}/me/films" in capsys.readouterr().out


def test_the_card_has_what_a_bench_measured_and_where(hub: Hub, model: Path, tmp_path: Path) -> None:
    write_bench(tmp_path / "numbers.json", bench())
    assert main(["push", str(model), "me/films", "--bench", str(tmp_path / "numbers.json"), "--public"]) == 0
    card = hub.files["README.md"].decode()
    assert card.startswith("---\ntags:\n- bermo\n---\n\n# The card\n")
    assert "| small onnx-int8 | 3.0 | 91.50 | 1.25 |" in card
    assert "Measured with 2 threads on a processor of two cores" in card
    assert hub.visible == {"me/films": "public"}
    assert (model / "README.md").read_text().endswith("# The card\n")


def test_what_compress_made_has_its_bench_beside_it(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_bench(model.parent / "bench.json", bench())
    assert main(["push", str(model.parent), "me/films", "--dry-run"]) == 0
    assert "## Measured" in capsys.readouterr().out


def test_a_dry_run_asks_nobody_and_shows_files_and_card(
    model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        assert main(["push", str(model), "me/films", "--dry-run"]) == 0
        assert not hub.calls
    shown = capsys.readouterr().out
    assert "MB  model.safetensors" in shown
    assert "# The card" in shown
    assert "for you alone to see as me/films" in shown


def test_a_folder_without_a_card_gets_one(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model / "README.md").unlink()
    compared = {"texts": 5, "on": "generated sentences", "relative_error": 0.01, "same_answers": 1.0}
    values = {"to": "torch-bf16", "precision": "bf16", "num_bytes": 2e6, "dense_bytes": 4e6}
    (model / "export.json").write_text(json.dumps(values | {"compared": compared, "processor": "a CPU"}))
    write_sums(model)
    assert main(["push", str(model), "me/films", "--dry-run"]) == 0
    shown = capsys.readouterr().out
    assert "pipeline_tag: text-classification" in shown
    assert (
        "differ by 1.00% from those of the model in torch, and 100.0% of answers are the same (a CPU)"
        in shown
    )


def test_the_model_of_a_run_goes_without_its_checkpoints(
    hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model.parent / "checkpoints").mkdir()
    (model.parent / "checkpoints" / "state.safetensors").write_text("x")
    (model / "estimator.json").write_text("{}")
    assert main(["push", str(model.parent), "me/films"]) == 0, capsys.readouterr().err
    assert "config.json" in hub.files
    assert not [name for name in hub.files if "state" in name or "estimator" in name]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("train.csv", "text,label"),
        ("texts.txt", "secret"),
        ("checkpoints/step.safetensors", "x"),
        (".cache/tokens.bin", "x"),
        ("optimizer.pt", "x"),
        ("other.py", "x"),
    ],
)
def test_anything_that_is_no_part_of_a_model_is_refused(
    name: str, content: str, hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / name).parent.mkdir(exist_ok=True)
    (model / name).write_text(content)
    assert main(["push", str(model), "me/films"]) == 2
    assert f"holds what is no part of a model: {name}" in said(capsys)
    assert not hub.calls


def test_a_link_is_refused(hub: Hub, model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "secret").write_text("x")
    (model / "vocab.txt").unlink(missing_ok=True)
    (model / "vocab.txt").symlink_to(tmp_path / "secret")
    write_sums(model)
    assert main(["push", str(model), "me/films"]) == 2
    assert "has links (vocab.txt)" in said(capsys)


def test_a_folder_that_bermo_did_not_write_is_refused(
    hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (model / "checksums.json").unlink()
    assert main(["push", str(model), "me/films"]) == 2
    assert "holds no model that bermo shipped" in said(capsys)
    assert not hub.calls


@pytest.mark.parametrize("name", ["films", "me/films/two", "me/fi lms", "me/..films", "/films"])
def test_a_wrong_name_is_refused(
    name: str, hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["push", str(model), name]) == 2
    assert f'"{name}" ' in said(capsys)
    assert not hub.calls


def test_a_missing_token_says_how_to_log_in(
    hub: Hub, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    assert main(["push", str(model), "me/films"]) == 2
    assert "There is no token of the model hub on this machine. Log in with: hf auth login" in said(capsys)
    assert not hub.calls


def test_a_refused_token_is_a_sentence(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_bad")
    assert main(["push", str(model), "me/films"]) == 2
    assert "The hub refused the token: it is wrong or too old" in said(capsys)


def test_an_owner_who_does_not_let_us_in_is_a_sentence(
    hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.refuses = {"/api/": 403}
    assert main(["push", str(model), "them/films"]) == 2
    assert "does not let this token write to them/films" in said(capsys)


def test_a_broken_connection_is_a_sentence_and_the_same_command_sends_it(
    hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.breaks_at = "/commit/"
    assert main(["push", str(model), "me/films"]) == 2
    told = said(capsys)
    assert "The connection to the hub broke" in told
    assert "Traceback" not in told
    assert not hub.files
    hub.breaks_at = None
    assert main(["push", str(model), "me/films"]) == 0
    assert "config.json" in hub.files


def test_no_network_is_a_sentence(
    hub: Hub, model: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    assert main(["push", str(model), "me/films"]) == 2
    assert "cannot be reached, and nothing was sent" in said(capsys)


def test_a_public_repository_gets_nothing_that_was_not_meant_for_all(
    hub: Hub, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.visible["me/films"] = "public"
    assert main(["push", str(model), "me/films"]) == 2
    assert "is there already and everybody may see it" in said(capsys)
    assert not hub.files


def test_the_address_of_the_hub_is_that_of_the_environment(model: Path) -> None:
    with serving() as hub:
        names = {"HF_ENDPOINT": hub.url, "HF_TOKEN": TOKEN, "HF_HUB_DISABLE_XET": "1", "HF_HUB_OFFLINE": "0"}
        command = [sys.executable, "-m", "bermo", "push", str(model), "me/films"]
        done = subprocess.run(command, env=os.environ | names, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        assert "config.json" in hub.files
