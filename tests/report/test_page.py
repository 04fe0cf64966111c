"""The page and its sources: what real runs become, what is refused, what is never overwritten."""

import base64
import hashlib
import json
import math
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.cli import main
from bermo.errors import BermoError
from bermo.figures.data import Bars, Figure, Heat, Lines, Table, as_table, write_findings
from bermo.files import read_sealed, write_sealed
from bermo.report import collect as collecting
from bermo.report import overview
from bermo.report.collect import collect
from bermo.report.overview import runs_findings
from bermo.report.page import GENERATOR, to_page, write_page
from tests.report.some import FIGURES, NASTY, findings


@pytest.fixture(scope="module")
def figures(runs: Path) -> dict[str, Figure]:
    page_findings = runs_findings(collect([runs]).runs)
    return {figure.title: figure for section in page_findings.sections for figure in section.figures}


def rows_of(path: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_arms_in_a_folder_are_found_and_named(runs: Path) -> None:
    assert [run.name for run in collect([runs]).runs] == ["plain", "pruned"]
    both = collect([runs / "pruned", runs / "plain", runs / "pruned"])
    assert [run.name for run in both.runs] == ["pruned", "plain"]


def test_more_runs_than_can_be_drawn_are_two_tables(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (collecting, overview):
        monkeypatch.setattr(module, "MANY", 1)
    many = collect([runs]).runs
    assert not any(seed.rows for run in many for seed in run.seeds)
    summary, settings = (section.figures for section in runs_findings(many).sections)
    assert [row[0] for row in as_table(summary[0]).rows] == ["plain", "pruned"]
    differing = as_table(settings[0])
    assert "prune.method" in differing.columns
    assert "data.task" not in differing.columns


def test_runs_of_the_same_name_are_told_apart_by_their_folder(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "plain", tmp_path / "other" / "plain")
    names = [run.name for run in collect([runs / "plain", tmp_path / "other" / "plain"]).runs]
    assert names == ["runs/plain", "other/plain"]


def test_the_summary_repeats_result_json(runs: Path, figures: dict[str, Figure]) -> None:
    table = figures["Score and cost of each run"]
    assert isinstance(table, Table)
    for row in table.rows:
        values = dict(zip(table.columns, row, strict=True))
        result = json.loads((runs / str(values["run"]) / "result.json").read_text())
        mean = result["mean"] if result["mean"] is not None else math.nan
        assert values["score"] == pytest.approx(mean, abs=0.006, nan_ok=True)
        assert values["seeds"] == len(result["seeds"])
        assert values["diverged"] == result["num_diverged"]
        assert values["seconds"] == pytest.approx(sum(s["seconds"] for s in result["seeds"]), abs=0.06)


def test_a_run_of_one_seed_has_no_columns_of_an_interval_and_the_page_says_why(runs: Path) -> None:
    alone = runs_findings(collect([runs / "plain"]).runs).sections[0]
    assert not {"low", "high", "deviation"} & set(as_table(alone.figures[0]).columns)
    assert alone.text.startswith("No run has two finished seeds, so no score has an interval")
    assert not any("interval" in figure.title for figure in alone.figures)
    run = collect([runs / "plain"]).runs[0]
    both = runs_findings([run, replace(run, name="two", seeds=run.seeds * 2)]).sections[0]
    assert {"low", "high", "deviation"} <= set(as_table(both.figures[0]).columns)
    assert both.text.startswith("Low and high are the ends")


def test_curves_are_the_mean_over_seeds_between_the_lowest_and_the_highest(
    runs: Path, figures: dict[str, Figure]
) -> None:
    loss = figures["Training loss"]
    assert isinstance(loss, Lines)
    seeds = [
        {
            row["step"]: row["loss"]
            for row in rows_of(runs / f"pruned/seed-{k}/metrics.jsonl")
            if "loss" in row
        }
        for k in (1, 2)
    ]
    for index, step in enumerate(loss.x):
        values = [seed[step] for seed in seeds if step in seed]
        if values:
            assert loss.series["pruned"][index] == pytest.approx(sum(values) / len(values))
            assert loss.bands["pruned"][index] == (min(values), max(values))
    assert "plain" not in loss.bands
    assert len([value for value in loss.series["plain"] if value is not None]) == 3


def test_the_density_map_holds_the_last_kept_share_of_every_matrix(
    runs: Path, figures: dict[str, Figure]
) -> None:
    heat = figures["Density of each matrix in the end: pruned"]
    assert isinstance(heat, Heat)
    last = [rows_of(runs / f"pruned/seed-{k}/metrics.jsonl") for k in (1, 2)]
    ends = [[row for row in rows if "density" in row][-1] for rows in last]
    assert len(heat.rows) * len(heat.columns) == sum(name.startswith("kept/") for name in ends[0])
    for layer, values in zip(heat.rows, heat.values, strict=True):
        for matrix, value in zip(heat.columns, values, strict=True):
            shares = [end[f"kept/layer.{layer}.{matrix}"] for end in ends]
            assert value == pytest.approx(sum(shares) / 2)
    assert len({value for values in heat.values for value in values}) > 5


def test_layer_weights_are_drawn_for_the_run_with_a_mix_only(figures: dict[str, Figure]) -> None:
    bars = figures["Weight of each layer in the mix"]
    assert isinstance(bars, Bars)
    assert list(bars.series) == ["pruned"]
    assert sum(value or 0 for value in bars.series["pruned"]) == pytest.approx(1, abs=1e-5)


def test_settings_that_differ_come_first(figures: dict[str, Figure]) -> None:
    table = figures["Settings of each run"]
    assert isinstance(table, Table)
    differ = [len(set(row[1:])) > 1 for row in table.rows]
    assert differ == sorted(differ, reverse=True)
    assert ("model.mix.kind", "none", "across") in table.rows


def test_a_run_under_way_shows_its_curves(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "young"
    shutil.copytree(runs / "pruned", copy)
    (copy / "result.json").unlink()
    for seed in (1, 2):
        (copy / f"seed-{seed}" / "result.json").unlink()
    with (copy / "seed-1" / "metrics.jsonl").open("a") as file:
        # A line that is being written.
        file.write('{"step": 7, "lo')
    page_findings = runs_findings(collect([copy]).runs)
    assert "young has no finished seed yet" in page_findings.sections[0].text
    titles = [figure.title for section in page_findings.sections for figure in section.figures]
    assert "Training loss" in titles
    assert any("on the validation set" in title for title in titles)


def test_a_seed_that_had_ended_and_has_no_result_is_named(runs: Path, tmp_path: Path) -> None:
    source = next(path for path in sorted(runs.iterdir()) if (path / "result.json").exists())
    shutil.copytree(source, tmp_path / "run")
    gone = sorted((tmp_path / "run").glob("seed-*/result.json"))[0]
    gone.unlink()
    with pytest.raises(BermoError, match=rf"{gone.parent.name}.result\.json is gone"):
        collect([tmp_path / "run"])
    # Its command is at work again.
    (gone.parent / "checkpoints").mkdir()
    assert collect([tmp_path / "run"]).runs[0].seeds[0].result is None


def test_a_step_that_is_no_number_is_one_sentence(runs: Path, tmp_path: Path) -> None:
    copy = tmp_path / "odd"
    shutil.copytree(runs / "pruned", copy)
    with (copy / "seed-1" / "metrics.jsonl").open("a") as file:
        file.write('{"step": Infinity, "loss": 1.0}\n')
    with pytest.raises(BermoError, match="no row of numbers"):
        collect([copy])


def test_a_run_of_another_kind_is_told_by_its_figures_alone(tmp_path: Path) -> None:
    (tmp_path / "spec.json").write_text('{"spec": {"text": {}}, "data": ""}')
    write_findings(tmp_path / "figures.json", findings())
    collected = collect([tmp_path])
    assert (len(collected.runs), len(collected.findings)) == (0, 1)


def test_figures_that_do_not_fit_are_told_with_their_file(tmp_path: Path) -> None:
    write_findings(tmp_path / "figures.json", findings())
    content = json.dumps(read_sealed(tmp_path / "figures.json"))
    (tmp_path / "figures.json").write_text(content.replace('"plain",', '"plain", "one more",'))
    with pytest.raises(BermoError, match=r'figures.json: The figure "Bars" has 3 values'):
        collect([tmp_path])


def test_the_same_sources_give_the_same_bytes(runs: Path, tmp_path: Path) -> None:
    for name in ("a.html", "b.html"):
        write_page([runs], tmp_path / name)
    assert (tmp_path / "a.html").read_bytes() == (tmp_path / "b.html").read_bytes()
    # Ours may be written again.
    write_page([runs], tmp_path / "a.html")


@pytest.mark.parametrize("model", [{"task": "own"}, {"backbone": {}, "mix": {"kind": "none"}}])
def test_a_spec_that_names_no_encoder_is_no_training(
    runs: Path, tmp_path: Path, model: dict[str, object]
) -> None:
    folder = Path(shutil.copytree(runs / "plain", tmp_path / "plain"))
    kept = json.loads((folder / "spec.json").read_text())
    kept["spec"]["model"] = model
    write_sealed(folder / "spec.json", {key: value for key, value in kept.items() if key != "crc32"})
    with pytest.raises(BermoError, match="holds neither a training"):
        collect([folder])


def test_the_page_escapes_what_it_is_given_and_names_every_figure() -> None:
    content = to_page([findings()], NASTY)
    assert NASTY not in content
    assert content.count("<figure") == content.count("<figcaption>") == len(FIGURES)
    assert content.count("<table>") == len(FIGURES)
    assert not re.search(r'(src|href)="(?!#|data:,)', content)
    # The page's own policy would refuse it.
    assert " style=" not in content


def test_the_page_allows_its_own_script_and_style_and_nothing_else() -> None:
    content = to_page([findings()], NASTY)
    (policy,) = re.findall(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">', content)
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", content, flags=re.S)
        hashed = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{rule} 'sha256-{hashed}';" in policy
        assert content.count(f"<{tag}") == 1
    assert content.index("http-equiv") < content.index("<title>")
    assert not re.search(r"<[^>]* on\w+=", content)


def test_a_page_of_two_runs_and_a_look_is_small(runs: Path, tmp_path: Path) -> None:
    write_findings(tmp_path / "figures.json", findings())
    write_page([runs, tmp_path], tmp_path / "report.html")
    assert (tmp_path / "report.html").stat().st_size < 150_000


def test_a_file_that_is_not_ours_is_never_overwritten(runs: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "report.html"
    theirs.write_text("<html>mine</html>")
    with pytest.raises(BermoError, match="was not written by bermo report; it is not overwritten"):
        write_page([runs], theirs)
    assert theirs.read_text() == "<html>mine</html>"
    with pytest.raises(BermoError, match="is a folder"):
        write_page([runs], tmp_path)


@pytest.mark.parametrize(
    ("paths", "sentence"),
    [
        ("nowhere", "There is no nowhere"),
        ("my.csv", "my.csv holds neither a training"),
        ("pathh", 'There is no pathh. Did you mean "path"?'),
        ("path", "path holds neither a training (spec.json) nor figures.json"),
        ("broken", "no file of figures"),
        ("torn", "torn/spec.json is damaged"),
    ],
)
def test_a_path_that_is_neither_is_one_sentence_and_nothing_is_written(
    paths: str, sentence: str, files: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for folder, name, content in (("broken", "figures.json", "{}"), ("torn", "spec.json", "[")):
        (files / folder).mkdir()
        (files / folder / name).write_text(content)
    assert main(["report", paths, "--out", "out.html"]) == 2
    assert sentence in capsys.readouterr().err
    assert not (files / "out.html").exists()


def test_the_verb_writes_a_page(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "report.html"
    assert main(["report", str(runs), "--out", str(out)]) == 0
    assert GENERATOR in out.read_text(encoding="utf-8")
    assert "report.html" in capsys.readouterr().out


def test_exports_and_models_beside_runs_are_left_out(
    runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    export = tmp_path / "mine-onnx"
    export.mkdir()
    (export / "export.json").write_text("{}")
    assert main(["report", str(runs), str(export), "--out", str(tmp_path / "report.html")]) == 0
    told = capsys.readouterr().out.split()
    assert "Left" in told
    assert str(export) in told
