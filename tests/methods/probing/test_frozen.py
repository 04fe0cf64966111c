"""Frozen probing end to end on a tiny encoder: controls, figures, a folder that goes on, and the command."""

import json
from pathlib import Path

import pytest
import torch

from bermo.cli import main
from bermo.data.intervals import wilson
from bermo.data.probing import read_probe
from bermo.data.rows import TextRows
from bermo.errors import BermoError
from bermo.figures.data import Heat, Table, read_findings
from bermo.methods.probing import fitting
from bermo.methods.probing import frozen as probe
from bermo.methods.probing.bag import bag_accuracy
from bermo.methods.probing.frozen import Probed, claim_folder, probe_task
from bermo.methods.probing.results import read_probed, write_probed
from bermo.methods.probing.spec import ProbeSpec
from bermo.nn.probes import Settings
from bermo.progress import Quiet
from bermo.report.frozen_probes import frozen_findings, frozen_table
from bermo.vectors import load_encoder


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """A few evaluations are enough to go every way."""
    monkeypatch.setattr(
        fitting,
        "settings_for",
        lambda classes, rows, spec: Settings(penalties=(1e-3,), evaluations=2, mix_steps=60, seed=spec.seed),
    )


def test_a_task_is_probed_with_all_its_controls(tmp_path: Path) -> None:
    encoder = load_encoder("box", device="cpu")
    data = read_probe("sentence-length", None, limit=300)
    spec = ProbeSpec(cache=str(tmp_path), pooling="mean", max_unknown=1.0)
    probed = probe_task(encoder, load_encoder("box", untrained_seed=5, device="cpu"), data, spec, Quiet())
    assert probed.layers == tuple(str(k) for k in range(encoder.num_layers))
    count = len(probed.layers)
    assert {len(v) for v in (probed.accuracy, probed.control, probed.untrained, probed.penalty)} == {count}
    # Six classes; lengths show in a mean of positions.
    assert max(probed.accuracy) > 40
    assert probed.memoriser is not None
    assert probed.memoriser > probed.largest_class
    assert sum(probed.mix_weights) == pytest.approx(1, abs=1e-5)
    assert probed.centre == pytest.approx(sum(k * w for k, w in enumerate(probed.mix_weights)))
    assert probed.rows == (300, 50, 50)
    write_probed(tmp_path / "one.json", probed)
    assert read_probed(tmp_path / "one.json", Probed) == probed
    assert read_probed(tmp_path / "two.json", Probed) is None
    findings = frozen_findings([probed], {})
    kinds = [type(figure) for section in findings.sections for figure in section.figures]
    assert kinds.count(Heat) == 5
    table = frozen_table([probed])
    assert isinstance(table, Table)
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["task"] == "sentence-length"
    low, high = wilson(round(probed.accuracy[int(probed.best)] / 2), 50)
    assert (row["its least"], row["its most"]) == (round(100 * low, 2), round(100 * high, 2))
    under = next(f for f in findings.sections[1].figures if f.title.startswith("Points over"))
    assert isinstance(under, Heat)
    assert under.values[0][int(probed.best)] == 0
    assert "not shown to be worse" in findings.sections[0].text


def test_a_model_s_own_mix_is_never_its_best_layer() -> None:
    one = dict.fromkeys(("group", "task"), "surface") | {"num_classes": 2, "rows": (9, 9, 9)}
    made = one | {"layers": ("0", "1", "mix"), "accuracy": (60.0, 70.0, 90.0), "dev": (60.0, 70.0, 90.0)}
    empty = {"penalty": (), "mix_accuracy": 0.0, "mix_weights": (), "centre": 0.0, "largest_class": 50.0}
    assert Probed(**made, **empty, bag_of_words=0.0).best == "1"  # type: ignore[arg-type]


def test_a_layer_that_is_named_twice_is_probed_once() -> None:
    encoder = load_encoder("box", device="cpu")
    last = encoder.num_layers - 1
    assert probe.layer_names(encoder, ProbeSpec(layers=(0, last, -1))) == ["0", str(last)]


def test_a_bag_of_words_solves_what_words_tell_and_nothing_else() -> None:
    for task, low, high in (("word-content", 0.8, 1.0), ("bigram-shift", 0.3, 0.65)):
        data = read_probe(task, None, limit=2500 if task == "word-content" else 600)
        parts = (data.train, data.valid, data.test)
        index = {label: at for at, label in enumerate(data.labels)}
        labels = [torch.tensor([index[str(x)] for x in rows.labels or ()]) for rows in parts]
        accuracy = bag_accuracy([list(rows.first) for rows in parts], labels, len(data.labels))
        assert low <= accuracy <= high


def test_a_folder_of_another_question_is_refused(tmp_path: Path) -> None:
    claim_folder(tmp_path / "a", {"model": "x", "limit": 5})
    claim_folder(tmp_path / "a", {"model": "x", "limit": 5})
    with pytest.raises(BermoError, match=r"another probing.+limit"):
        claim_folder(tmp_path / "a", {"model": "x", "limit": 6})
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "mine.txt").write_text("mine")
    with pytest.raises(BermoError, match="holds no probing"):
        claim_folder(tmp_path / "b", {})
    # What another process is just writing is no foreign file.
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".probe.json.1.tmp").write_text("{")
    claim_folder(tmp_path / "c", {"model": "x"})


def test_text_that_the_vocabulary_lacks_is_refused(tmp_path: Path) -> None:
    encoder = load_encoder("box", device="cpu", lowercase="off")
    rows = TextRows(["The Dog Sees The Cat ."])
    with pytest.raises(BermoError, match="unknown to the tokenizer"):
        probe.check_text(encoder, rows, ProbeSpec())
    probe.check_text(encoder, rows, ProbeSpec(max_unknown=1.0))


def test_the_command_probes_and_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    command = ["probe", "--tasks", "tense", "--limit", "60", "--no-controls", "--out", str(out)]
    assert main(command) == 0
    assert "tense" in capsys.readouterr().out
    made = json.loads((out / "tense.json").read_text())
    assert main(command) == 0
    assert json.loads((out / "tense.json").read_text()) == made
    assert read_findings(out / "figures.json").sections
    assert main([*command, "--probe", "hidden"]) == 2
    assert "another probing" in capsys.readouterr().err
    assert main(["probe", "--tasks", "tence"]) == 2
    assert main(["probe", "--data", str(tmp_path / "nowhere")]) == 2
    assert main(["probe", "--data", str(tmp_path)]) == 2
    assert main(["probe", "--limit", "3"]) == 2


def test_a_wrong_layer_leaves_the_folder_free_and_options_of_the_other_protocol_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["probe", "--tasks", "tense", "--limit", "60", "--no-controls", "--out", str(tmp_path)]
    assert main([*command, "--layers", "99"]) == 2
    assert "Layer 99 was asked for" in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
    assert main([*command, "--seeds", "3"]) == 2
    assert "--seeds means nothing to --protocol frozen" in capsys.readouterr().err
    for words in ("--layers 0,6", "--pooling mean", "--probe hidden", "--no-controls", "--batch-size 8"):
        assert main(["probe", "--protocol", "finetune", *words.split()]) == 2
        assert "means nothing to --protocol finetune" in capsys.readouterr().err


def test_the_command_fine_tunes_both_ways_and_gives_a_verdict(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [
        "probe",
        "--protocol",
        "finetune",
        "--tasks",
        "tense",
        "--limit",
        "48",
        "--seeds",
        "2",
        "--epochs",
        "1",
        "--out",
        str(tmp_path),
    ]
    assert main(command) == 0
    printed = capsys.readouterr().out
    assert "points" in printed or "nothing can be said" in printed
    assert (tmp_path / "tense-mix" / "seed-63" / "result.json").exists()
    assert read_findings(tmp_path / "figures.json").title == "Probing by fine-tuning"


def test_the_best_layer_of_the_table_and_of_the_figure_is_the_one_chosen_by_dev() -> None:
    one = {"group": "surface", "task": "sentence-length", "num_classes": 2, "rows": (9, 9, 100)}
    # Dev finds layer 1 best, test layer 2.
    made = one | {"layers": ("0", "1", "2"), "accuracy": (60.0, 70.0, 75.0), "dev": (60.0, 80.0, 70.0)}
    mixed = {"mix_accuracy": 70.0, "mix_weights": (0.2, 0.3, 0.5), "centre": 1.3, "largest_class": 50.0}
    probed = Probed(**made, **mixed, penalty=(1e-3,) * 3, bag_of_words=0.0)  # type: ignore[arg-type]
    findings = frozen_findings([probed], {})
    row = dict(zip(frozen_table([probed]).columns, frozen_table([probed]).rows[0], strict=True))
    assert (row["best layer"], row["its test"]) == ("1", 70.0)
    over = next(f for f in findings.sections[1].figures if f.title.startswith("Points over"))
    assert isinstance(over, Heat)
    assert over.values[0] == (-10.0, 0.0, 5.0)
    assert "best layers 1 (1)" in findings.sections[0].text
