"""The table of methods: every chain is made of commands that the command line takes."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bermo.atlas.baselines import BASELINES as FITTED
from bermo.atlas.chain import Base, make_chain, torch_model
from bermo.atlas.checks import Rows
from bermo.atlas.methods import BASELINES, DENSE, METHODS, NAMES, STUDENTS, choose
from bermo.atlas.prepare import make_base
from bermo.atlas.students import STUDENTS as TAUGHT
from bermo.cli import build_parser
from bermo.data.inputs import input_names, input_rows, text_blocks
from bermo.data.load import load_task
from bermo.data.rows import TextRows
from bermo.errors import BermoError
from bermo.methods.checks import check_methods
from bermo.spec import DataSpec, ModelSpec, RunSpec
from bermo.verbs import VERBS
from bermo.verbs.options import read_options


@pytest.fixture
def base(tmp_path: Path) -> Base:
    files = {name: tmp_path / name for name in ("valid", "judged", "train", "texts")}
    return Base(spec=RunSpec(), num_layers=6, out=tmp_path, **files)


@pytest.mark.parametrize("name", METHODS)
def test_the_commands_of_every_method_are_read_and_each_reads_what_the_one_before_it_made(
    name: str, base: Base
) -> None:
    chain = make_chain(METHODS[name], 3, base)
    before = base.out / DENSE / "seed-3" / "1-train"
    for job in chain.jobs:
        options = read_options(VERBS[job.words[0]].options, build_parser()[0].parse_args(job.words))
        assert options.out == job.folder
        assert job.folder.is_relative_to(base.out / name / "seed-3")
        if job.words[0] == "train":
            check_methods(options.spec)
            assert options.spec.seeds == (3,)
            assert options.spec.distill.teacher in (None, str(base.out / DENSE / "seed-3" / "1-train"))
        else:
            source = options.spec.run if job.words[0] == "compress" else options.run
            assert source == before
        before = job.folder
    needed = [need for job in chain.jobs for need in job.needs]
    made = [f"{DENSE}/seed-3/1-train", *(job.name for job in chain.jobs)]
    assert needed == ([] if name == DENSE else made[: len(chain.jobs)])


def test_students_have_the_layers_that_their_share_says(base: Base) -> None:
    base = replace(base, num_layers=12)
    layers = {
        "first-layers-taught": (1, 2, 3, 4, 5, 6),
        "even-layers-taught": (2, 4, 6, 8, 10, 12),
        "quarter-taught": (1, 2, 3),
        "third-60": (1, 2, 3, 4),
    }
    for name, wanted in layers.items():
        words = make_chain(METHODS[name], 1, base).jobs[0].words
        assert words[words.index("--student-layers") + 1] == ",".join(map(str, wanted))
    words = make_chain(METHODS["first-layers"], 1, base).jobs[0].words
    assert words[words.index("--keep-layers") + 1] == "6"
    assert "--teacher" not in words


def test_layers_are_tied_in_groups_of_equal_size(base: Base) -> None:
    for num_layers, groups in ((3, "1"), (6, "2"), (10, "2"), (12, "4")):
        words = make_chain(METHODS["tied"], 1, replace(base, num_layers=num_layers)).jobs[0].words
        assert words[words.index("--tie-layers") + 1] == groups


def test_a_ternary_model_is_what_the_binary_one_goes_on_from(base: Base) -> None:
    chain = make_chain(METHODS["binary"], 1, base)
    first, second, last = (job.words for job in chain.jobs)
    assert first[first.index("--quantize") + 1] == "ternary"
    assert second[second.index("--model") + 1] == str(chain.jobs[0].folder / "model")
    assert last[1] == str(chain.jobs[1].folder)


@pytest.mark.parametrize("name", METHODS)
def test_texts_without_labels_are_learned_from_by_whatever_has_a_teacher_but_theseus(
    name: str, base: Base
) -> None:
    base = replace(base, unlabelled="more.txt")
    for job in make_chain(METHODS[name], 1, base).jobs:
        is_taught = "--teacher" in job.words or job.words[0] == "compress"
        assert ("--unlabelled" in job.words) == (is_taught and name != "theseus"), job.words
        if job.words[0] == "train":
            options = read_options(VERBS["train"].options, build_parser()[0].parse_args(job.words))
            check_methods(options.spec)
            assert options.spec.distill.unlabelled in (None, "more.txt")


def test_the_worst_matrices_stay_in_fp32(base: Base) -> None:
    (job,) = make_chain(METHODS["int8-kept"], 1, base).jobs
    assert job.words[job.words.index("--keep-fp32") + 1] == "4"
    (plain,) = make_chain(METHODS["int8"], 1, base).jobs
    assert "--keep-fp32" not in plain.words


def test_only_what_comes_before_the_last_training_belongs_to_the_trainings(base: Base) -> None:
    chain = make_chain(METHODS["structured"], 1, base)
    assert [job.words[0] for job in chain.training] == ["train"]
    assert torch_model(chain, base) == chain.jobs[1].folder
    int8 = make_chain(METHODS["int8"], 1, base)
    assert int8.training == ()
    assert torch_model(int8, base) == base.out / "dense" / "seed-1" / "1-train"


def test_methods_are_chosen_by_name_with_the_dense_one_first() -> None:
    assert choose(["static", "int8"]) == [DENSE, "int8", "static"]
    assert choose(["all"]) == list(NAMES)
    assert "compress" not in choose([])
    assert set(choose([])) - set(choose([], is_tiny=True)) == {"soft-movement", "l0"}
    assert tuple(FITTED) == BASELINES
    assert tuple(TAUGHT) == STUDENTS
    assert choose(["tf-idf", "bilstm"]) == [DENSE, "bilstm", "tf-idf"]
    assert not set(STUDENTS) & set(choose([]))
    with pytest.raises(BermoError, match=r'no method "structred". Did you mean "structured"\?'):
        choose(["structred"])


def test_the_page_on_atlases_names_every_method_and_no_other() -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "atlas.md").read_text(encoding="utf-8")
    rows = text.split("## The methods")[1].split("\n## ")[0].splitlines()
    cells = [row.split("|")[2] for row in rows if row.startswith("| ") and not row.startswith("| group")]
    named = [word for cell in cells for word in cell.split("`")[1::2] if " " not in word]
    assert sorted(named) == sorted(NAMES)


def test_the_page_on_atlases_says_how_long_they_train() -> None:
    path = Path(__file__).parents[2] / "docs" / "how-to" / "atlas.md"
    text = " ".join(path.read_text(encoding="utf-8").split())
    usual, whole = (
        round(sum(METHODS[name].cost for name in choose(names) if name in METHODS)) for names in ([], ["all"])
    )
    assert f"about {usual} times as long as the dense model alone, all methods {whole} times" in text


def test_the_page_on_atlases_names_who_reads_texts_without_labels(base: Base) -> None:
    text = (Path(__file__).parents[2] / "docs" / "how-to" / "atlas.md").read_text(encoding="utf-8")
    rows = text.split("## Texts without labels")[1].split("\n## ")[0].splitlines()
    named = [word for row in rows if row.startswith("- ") for word in row.split("`")[1::2]]
    chains = [make_chain(method, 1, replace(base, unlabelled="more.txt")) for method in METHODS.values()]
    reading = [chain for chain in chains if any("--unlabelled" in job.words for job in chain.jobs)]
    assert sorted(named) == sorted([*(chain.method.name for chain in reading), *STUDENTS])


def test_int8_is_calibrated_with_rows_that_a_model_of_pairs_reads(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    pairs = [('He said: "no', "a, b"), ("c", 'd "e" f')]
    path.write_text("q\tanswer\tlabel\n" + "".join(f"{a}\t{b}\tyes\n{b}\t{a}\tno\n" for a, b in pairs))
    data = DataSpec(train=str(path), valid=str(path), text=("q", "answer"), label="label")
    task = load_task(data)
    assert isinstance(task.train, TextRows)
    assert isinstance(task.valid, TextRows)
    rows = Rows(data=task, train=task.train, valid=task.valid)
    base = make_base(RunSpec(model=ModelSpec(backbone="box"), data=data), rows, tmp_path / "out")
    (job,) = make_chain(METHODS["int8-calibrated"], 1, base).jobs
    calibrate = Path(job.words[job.words.index("--calibrate") + 1])
    (table,) = text_blocks(calibrate, task.task, task.text, 128)
    read = input_rows(table, task.task, input_names(table, task.task, task.text))
    assert isinstance(read, TextRows)
    assert read.second is not None
    assert list(zip(read.first, read.second, strict=True)) == [
        pair for a, b in pairs for pair in ((a, b), (b, a))
    ]


def test_an_export_chooses_its_form_by_rows_from_all_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sorted.tsv"
    path.write_text(
        "text\tlabel\n" + "".join(f"text {n}\t{'no' if n < 300 else 'yes'}\n" for n in range(600))
    )
    data = DataSpec(train=str(path), valid=str(path))
    task = load_task(data)
    assert isinstance(task.train, TextRows)
    assert isinstance(task.valid, TextRows)
    rows = Rows(data=task, train=task.train, valid=task.valid)
    base = make_base(RunSpec(model=ModelSpec(backbone="box"), data=data), rows, tmp_path / "out")
    *_, job = make_chain(METHODS["int8"], 1, base).jobs
    judged = [
        json.loads(line) for line in Path(job.words[job.words.index("--data") + 1]).read_text().splitlines()
    ]
    assert len(judged) == 200
    assert [row["label"] for row in judged] == ["no"] * 100 + ["yes"] * 100
