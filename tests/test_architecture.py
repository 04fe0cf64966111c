"""The house: imports go only downwards and in no circle, heavy libraries stay in their rooms, files stay
small.

`ROOMS` is the only drawing of the package: a room is a folder or a loose file, the lowest floor comes last.
README.md and CONTRIBUTING.md show this table; a test compares them with it.
"""

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "bermo"
ROOMS: list[dict[str, str]] = [
    {
        "cli.py": "words to a verb; --help is instant",
        "__main__.py": "python -m bermo",
        "nursery.py": "imports once, then forks a process for each command",
    },
    {"verbs/": "one file for each verb: its options and the function that it calls"},
    {"atlas/": "every compression method on one model: chains of commands, one table, one page"},
    {"jobs/": "many runs: on the cores and GPUs of this machine, on Ray, on Slurm; searches over options"},
    {"estimators/": "what Python imports: fit, predict and score on lists, arrays, frames and datasets"},
    {"report/": "results to terminal tables and one self-contained page"},
    {
        "ship/compress/": "the whole way to a wanted speed, latency or size",
        "ship/push/": "a shipped model and its card on the model hub",
    },
    {
        "ship/bench/": "models side by side: size, latency, throughput, memory, score",
        "ship/export/": "ONNX, OpenVINO, int8 and sparse files, compared with the model before they are kept",
        "ship/serve/": "models over HTTP: batches of the requests that wait, limits, metrics",
        "ship/shrink/": "delete heads, neurons, layers and words that are dead or chosen",
    },
    {
        "ship/runtimes/": "anything that answers: torch, onnxruntime, OpenVINO, the sparse container",
        "analyse/": "a model and texts to measures: geometry, senses, attention, heads, layers, grammar",
    },
    {
        "methods/probing/": "what frozen layers know, with controls and paired tests",
        "methods/pretraining/": "from bare text to an encoder",
    },
    {"methods/": "fine-tuning, pruning, distillation, seeds together: an objective and hooks for the loop"},
    {
        "training/": "the one loop: step, CUDA graphs, optimiser, schedule, checkpoints, stacked models",
        "vectors/": "every layer's vectors of any encoder, streamed or kept on disk",
    },
    {"pruning/": "masks on weights and gates on units: criteria, schedule, folding, the Trainer callback"},
    {"runs/": "the folder of a run: who may write there, its results, the statistics over seeds"},
    {
        "models/": "backbone, mix and head: one model class for each kind of task, and for pretraining",
        "data/pretrain/": "documents, vocabulary, packed and masked rows",
    },
    {"data/": "tasks, reading, tokens, batches, metrics"},
    {"encoders/": "one table of families; the only room that knows Hugging Face's internals"},
    {
        "nn/fast/": "Triton kernels, each with its twin in torch; faster functions for the CPU",
        "data/sentences/": "generated English sentences with exact labels",
        "figures/": "what was measured, as data, and its drawing as SVG",
        "recipes/": "experiments: functions that return a spec",
    },
    {"nn/": "pure torch: mixes, masks, gates, heads, losses, probes"},
    {
        "spec.py": "what a run is: frozen dataclasses",
        "aliases.py": "what other tools call an option of ours",
        "choices.py": "choices that several verbs offer: device, separator, tracker",
        "fields.py": "the fields of a spec: help, flag, bounds, rules",
        "values.py": "values of fields read from texts and JSON",
        "typed.py": "values read from a file compared with the types of a dataclass",
        "distill_spec.py": "what a student learns from a teacher; the losses of papers",
        "method_spec.py": "methods of the field beside pruning and a teacher",
        "pretrain_spec.py": "what a pretraining is",
        "elmo_spec.py": "the shapes of ELMo",
        "pace_spec.py": "how long a pretraining is, and at which rates",
        "progress.py": "how long work tells how far it is",
        "files.py": "files written whole or not at all",
        "sums.py": "what the files of a model's folder were when they were written",
        "machine.py": "the processor, its instruction sets and the memory, on any system",
        "printing.py": "text of users' files made harmless for the terminal",
        "interrupts.py": "Ctrl-C while there is nothing to save yet",
        "crashes.py": "what ended a command, as one sentence, its traceback in a file",
        "errors.py": "the one error class",
    },
]
FLOOR_OF = {room: floor for floor, rooms in enumerate(reversed(ROOMS)) for room in rooms}
MODULES = {
    path: ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts)
    for path in PACKAGE.rglob("*.py")
    if path.stat().st_size
}
PATHS = {name.removesuffix(".__init__"): path for path, name in MODULES.items()}
# bermo/__init__.py names every public object, and packages re-export what is theirs.
PUBLIC = PACKAGE / "__init__.py"
EVERY_MODULE = pytest.mark.parametrize("path", sorted(MODULES), ids=MODULES.get)


def room_of(path: Path) -> str:
    """The innermost folder of the table that holds the file, or the file itself."""
    inside = path.relative_to(PACKAGE).as_posix()
    rooms = [room for room in FLOOR_OF if inside == room or (room.endswith("/") and inside.startswith(room))]
    assert rooms, f"bermo/{inside} stands in no room of the table"
    return max(rooms, key=len)


@cache
def imported(path: Path) -> set[str]:
    """The full names that a file imports, wherever in it the import stands."""
    names = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names |= {name.value for name in node.args if isinstance(name, ast.Constant)}
        elif isinstance(node, ast.Dict):  # a table of modules that are imported when they are asked for
            known = (value.value for value in node.values if isinstance(value, ast.Constant))
            names |= {name for name in known if name in PATHS}
    return names


@cache
def files_imported(path: Path) -> set[Path]:
    """The package's own files among them."""
    names = {name for name in imported(path) if name.startswith("bermo.")}
    return {PATHS[name if name in PATHS else name.rpartition(".")[0]] for name in names} - {PUBLIC}


@EVERY_MODULE
def test_imports_go_only_downwards(path: Path) -> None:
    if path == PUBLIC:
        return
    own = room_of(path)
    for target in files_imported(path):
        below = room_of(target)
        # Loose files of one floor are one room.
        is_same = below == own or (own.endswith(".py") and below.endswith(".py"))
        assert FLOOR_OF[below] < FLOOR_OF[own] + is_same, (
            f"{MODULES[path]} ({own}, floor {FLOOR_OF[own]}) imports {MODULES[target]}"
            f" ({below}, floor {FLOOR_OF[below]})"
        )


def test_no_files_import_each_other_in_a_circle() -> None:
    try:
        TopologicalSorter({path: files_imported(path) for path in MODULES}).prepare()
    except CycleError as error:
        pytest.fail(" -> ".join(MODULES[path] for path in error.args[1]))


def test_every_room_of_the_table_exists() -> None:
    for room in FLOOR_OF:
        assert (PACKAGE / room).exists(), room


@EVERY_MODULE
def test_heavy_libraries_stay_in_their_rooms(path: Path) -> None:
    if path == PUBLIC:
        return
    libraries = {name.split(".")[0] for name in imported(path)}
    floor = FLOOR_OF[room_of(path)]
    assert "torch" not in libraries or floor > FLOOR_OF["spec.py"]
    assert "transformers" not in libraries or floor >= FLOOR_OF["encoders/"]
    assert "pickle" not in libraries


@EVERY_MODULE
def test_no_file_is_long_and_none_has_an_empty_name(path: Path) -> None:
    assert path.stem not in ("utils", "common", "helpers", "base", "misc")
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 350


def test_no_test_module_imports_another() -> None:
    tests = Path(__file__).parent
    for path in tests.rglob("test_*.py"):
        others = [name for name in imported(path) if name.startswith("tests.") and ".test_" in name]
        assert not others, (
            f"{path.relative_to(tests)} imports {others}: put what both need into a file of its own"
        )


def test_names_that_benchmarks_and_scripts_import_exist() -> None:
    """They run rarely, on other machines: a name that has moved must be seen here."""
    lost = [
        f"{path.relative_to(PACKAGE.parent)}: {node.module}.{name.name}"
        for folder in ("benchmarks", "scripts", "docs")
        for path in sorted((PACKAGE.parent / folder).rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "bermo"
        for name in node.names
        if not is_defined(node.module or "", name.name)
    ]
    assert not lost, lost


def is_defined(module: str, name: str) -> bool:
    """Whether a module of bermo has a name: by its source, without importing it."""
    place = PACKAGE.parent.joinpath(*module.split("."))
    return (place / name).is_dir() or (place / f"{name}.py").exists() or name in names_of(module)


@cache
def names_of(module: str) -> set[str]:
    """Every name that a module makes or imports."""
    place = PACKAGE.parent.joinpath(*module.split("."))
    source = place / "__init__.py" if place.is_dir() else place.with_suffix(".py")
    if not source.exists():
        return set()
    names = set()
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Name):
            names.add(node.id)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif module == "bermo" and isinstance(node, ast.Constant):
            names.add(str(node.value))  # the public names stand in a table there
    return names
