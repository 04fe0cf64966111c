"""Probing tasks from files: both formats, their faults, splits that share nothing."""

from pathlib import Path

import pytest

from bermo.data.load import load_task
from bermo.data.probing import choose_tasks, has_files, read_probe
from bermo.errors import BermoError
from bermo.spec import DataSpec


@pytest.fixture
def xprobe(tmp_path: Path) -> Path:
    """Two files, with a sentence in both, and one that has two labels."""
    folder = tmp_path / "past_present"
    folder.mkdir()
    rows = [f"Sentence number {k} .\t{'Past' if k % 2 else 'Pres'}" for k in range(100)]
    (folder / "va.txt").write_text("\n".join([*rows, "It is doubtful .\tPast"]) + "\n")
    (folder / "te.txt").write_text("\n".join([*rows[:10], "It is doubtful .\tPres"]) + "\n")
    return tmp_path


def test_xprobe_counts_a_sentence_once_and_cuts_by_seed(xprobe: Path) -> None:
    data = read_probe("tense", xprobe)
    parts = [set(rows.first) for rows in (data.train, data.valid, data.test)]
    assert [len(part) for part in parts] == [80, 10, 10]
    assert len(set().union(*parts)) == 100
    assert "It is doubtful ." not in set().union(*parts)
    assert data.notes == ("112 rows, 11 repeated, 1 with two labels left out",)
    assert data.labels == ("Past", "Pres")
    for text, label in zip(data.train.first, data.train.labels or (), strict=True):
        assert label == ("Past" if int(text.split()[2]) % 2 else "Pres")
    assert read_probe("tense", xprobe).train == data.train
    assert read_probe("tense", xprobe, seed=1).train != data.train


def test_sentences_that_differ_in_capitals_and_spaces_are_one(xprobe: Path) -> None:
    rows = [f"It is {k} now .\t{'Past' if k % 2 else 'Pres'}" for k in range(40)]
    twins = [row.upper().replace("PAST", "Past").replace("PRES", "Pres") for row in rows]
    spaced = [f" {row.replace(' ', '  ')}" for row in rows]
    (xprobe / "past_present" / "va.txt").write_text("\n".join([*rows, *twins, *spaced]) + "\n")
    (xprobe / "past_present" / "te.txt").write_text("\n".join(rows) + "\n")
    data = read_probe("tense", xprobe)
    found = [text for part in (data.train, data.valid, data.test) for text in part.first]
    assert sorted(found) == sorted(row.partition("\t")[0] for row in rows)
    assert data.notes == ("160 rows, 120 repeated, 0 with two labels left out",)


def test_labels_are_doubted_where_many_sentences_have_two(xprobe: Path) -> None:
    assert read_probe("tense", xprobe).doubt == ""  # one of 101 has two
    rows = [f"Sentence number {k} .\tPres" for k in range(0, 100, 5)]
    with (xprobe / "past_present" / "te.txt").open("a") as file:
        file.write("\n".join(rows) + "\n")
    data = read_probe("tense", xprobe)
    # Every tenth sentence was odd, so Past before; with the one that was doubtful already, 11 of 101.
    assert data.doubt == "11% of its sentences have two labels"
    counts = [list(data.test.labels or ()).count(label) for label in data.labels]
    assert data.largest_class == pytest.approx(100 * max(counts) / sum(counts))


def test_senteval_keeps_its_own_splits(tmp_path: Path) -> None:
    lines = [
        "tr\tPAST\tHe ran .",
        "tr\tPRES\tHe runs .",
        "va\tPAST\tShe ran .",
        "te\tPRES\tI run .",
    ]
    (tmp_path / "past_present.txt").write_text("\n".join(lines) + "\n")
    data = read_probe("tense", tmp_path)
    assert list(data.train.first) == ["He ran .", "He runs ."]
    assert list(data.valid.first) == ["She ran ."]
    assert list(data.test.labels or ()) == ["PRES"]
    (tmp_path / "past_present.txt").write_text("tr\tPAST\n")
    with pytest.raises(BermoError, match=r"line 1: expected tr, va or te, a label and a sentence"):
        read_probe("tense", tmp_path)


def test_generated_parts_share_no_sentence() -> None:
    data = read_probe("odd-man-out", None, limit=500)
    parts = [set(rows.first) for rows in (data.train, data.valid, data.test)]
    assert [len(part) for part in parts] == [500, 50, 50]
    assert len(set().union(*parts)) == 600


def test_fine_tuning_trains_on_train_and_scores_on_test(xprobe: Path) -> None:
    data = read_probe("tense", xprobe)
    task = load_task(DataSpec(task="probe/tense", folder=str(xprobe)))
    assert list(task.train.first) == list(data.train.first)
    assert list(task.valid.first) == list(data.test.first)
    assert task.labels == ("Past", "Pres")
    generated = load_task(DataSpec(task="probe/tense", limit=60))
    assert list(generated.train.first) == list(load_task(DataSpec(task="box/tense", limit=60)).train.first)


def test_tasks_are_chosen_by_name_group_or_all(xprobe: Path) -> None:
    assert len(choose_tasks("all")) == 10
    assert choose_tasks("surface") == ["sentence-length", "word-content"]
    assert choose_tasks("tense, syntactic")[-1] == "tense"
    assert len(choose_tasks("tense, syntactic")) == 4
    with pytest.raises(BermoError, match=r'no probing task "tence".+"tense"'):
        choose_tasks("tence")
    assert has_files("tense", xprobe)
    assert not has_files("bigram-shift", xprobe)
    with pytest.raises(BermoError, match="There is no folder"):
        read_probe("tense", xprobe / "nowhere")
    (xprobe / "bigram_shift").mkdir()
    with pytest.raises(BermoError, match=r"no \.txt file"):
        read_probe("bigram-shift", xprobe)
    (xprobe / "bigram_shift" / "va.txt").write_text("no tab here\n")
    with pytest.raises(BermoError, match="line 1: expected a sentence, a tab and a label"):
        read_probe("bigram-shift", xprobe)
