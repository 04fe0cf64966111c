"""Write docs/reference/ from the command line's parsers, the recipes and the docstrings of the public names.

    python scripts/make_reference.py [--out FOLDER]

A test compares the committed pages with what this makes, so they cannot fall behind the code.
"""

import argparse
import inspect
import re
import sys
import textwrap
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

import bermo  # noqa: E402
from bermo.cli import build_parser  # noqa: E402
from bermo.files import write_text  # noqa: E402
from bermo.recipes import RECIPES  # noqa: E402
from bermo.verbs import VERBS  # noqa: E402

OUT = ROOT / "docs" / "reference"
MADE = "<!-- made by scripts/make_reference.py -->"
WIDTH = 118
GROUPS = {
    "Fit and predict": ("Classifier", "Regressor", "predict"),
    "Models": (),
    "Mixes": ("LayerMix", "OneLayer", "ConcatLayers", "GateMix", "InnerMix"),
    "Pruning": (
        "prune_",
        "prune_units_",
        "fold_",
        "count",
        "Magnitude",
        "Movement",
        "SoftMovement",
        "L0",
        "CubicSchedule",
        "parameter_groups",
        "PruningCallback",
    ),
    "Runs": (
        "finetune",
        "pretrain",
        "import_elmo",
        "RunSpec",
        "ModelSpec",
        "MixSpec",
        "DataSpec",
        "TrainSpec",
        "PruneSpec",
        "DistillSpec",
        "MethodSpec",
        "PretrainSpec",
    ),
    "Encoders and vectors": ("box", "load_encoder", "stream_vectors", "text_vectors"),
    "Shipping": ("shrink", "load_sparse"),
}
"""Headings of the Python page and their names; a model's name begins with Bermo."""
HIDDEN = {"forward", "extra_repr", "reset_parameters"}
"""Methods that torch calls."""


def pages() -> dict[str, str]:
    """Return every page by its name in the folder."""
    made = {f"commands/{verb}.md": command_page(verb) for verb in VERBS}
    return {"README.md": index(), "python.md": python_page(), "recipes.md": recipes_page()} | made


def index() -> str:
    """The verbs, one line each, and the other pages."""
    rows = "\n".join(f"| [{name}](commands/{name}.md) | {_cell(verb.help)} |" for name, verb in VERBS.items())
    return (
        f"{MADE}\n\n# Reference\n\n| verb | what it does |\n| --- | --- |\n{rows}\n\n"
        "[Every public name of Python](python.md), [every recipe](recipes.md), [the words](../glossary.md).\n"
        "\nA verb ends with code 0; with 2 and one sentence where something was wrong with the command;"
        " with 3 where\n"
        "`bermo compress` or `bermo atlas --pick` met no goal; with 128 + the signal's number where it was"
        " stopped.\n"
    )


def command_page(name: str) -> str:
    """One verb: its usage, its words and its options by group."""
    parser = build_parser()[1][name]
    forms = re.split(r"\n\s*(?=bermo )", parser.format_usage().removeprefix("usage: "))
    usage = "\n".join(_wrapped(" ".join(form.split())) for form in forms)
    text = f"{MADE}\n\n# bermo {name}\n\n{_sentence(VERBS[name].help)}\n\n```text\n{usage}\n```\n"
    for group in parser._action_groups:
        actions = [action for action in group._group_actions if action.dest != "help"]
        if actions:
            title = (group.title or "options").capitalize()
            rows = "\n".join(f"| {_flags(action)} | {_cell(_help(action))} |" for action in actions)
            text += f"\n## {title}\n| option | meaning |\n| --- | --- |\n{rows}\n"
    return text


def _flags(action: argparse.Action) -> str:
    value = action.metavar if isinstance(action.metavar, str) else action.dest.upper()
    if action.choices is not None and action.metavar is None:
        value = ", ".join(map(str, action.choices))
    if not action.option_strings:
        return f"`{action.metavar or action.dest}`"
    shown = ", ".join(f"`{flag}`" for flag in action.option_strings)
    return shown if action.nargs == 0 else f"{shown} {_cell(value)}"


def _help(action: argparse.Action) -> str:
    return (action.help or "").replace("%%", "%")


def recipes_page() -> str:
    """Every recipe with its question, source, cost and expected score."""
    text = (
        f"{MADE}\n\n# Recipes\n\n`bermo show NAME` prints a recipe with its spec, `bermo run NAME` runs it.\n"
    )
    for name, recipe in RECIPES.items():
        text += f"\n## {name}\n{_prose(inspect.getdoc(recipe) or '')}\n"
    return text


def python_page() -> str:
    """Every public name: its signature and its docstring."""
    text = f"{MADE}\n\n# Python\n\nEvery name that `import bermo` offers.\n"
    left = list(bermo.__all__)
    for heading, names in GROUPS.items():
        own = [name for name in left if name in names or (heading == "Models" and name.startswith("Bermo"))]
        own = [name for name in own if name != "BermoError"]
        left = [name for name in left if name not in own]
        text += f"\n## {heading}\n" + "".join(map(_name, own))
    return text + ("\n## Errors and others\n" + "".join(map(_name, left)) if left else "")


def _name(name: str) -> str:
    thing = getattr(bermo, name)
    text = f"\n### bermo.{name}\n```text\n{_wrapped(_signature(name, thing))}\n```\n"
    text += f"{_prose(inspect.getdoc(thing) or '')}\n"
    if _has_fields(thing):
        text += _fields(thing)
    for method, function in _methods(thing):
        signature = _wrapped(_signature(f"{name}.{method}", function))
        text += f"\n```text\n{signature}\n```\n{_prose(inspect.getdoc(function) or '')}\n"
    return text


def _methods(thing: Any) -> list[tuple[str, Any]]:
    """Return the public methods that bermo defines and documents, without those that a framework calls."""
    if not isinstance(thing, type):
        return []
    own = [base for base in thing.__mro__ if base.__module__.startswith("bermo.")]
    names = list(dict.fromkeys(name for base in own for name in vars(base)))
    known = [
        (name, getattr(thing, name)) for name in names if not name.startswith("_") and name not in HIDDEN
    ]
    return [(name, value) for name, value in known if inspect.isroutine(value) and value.__doc__]


def _has_fields(thing: Any) -> bool:
    """A dataclass of ours; BermoConfig is one of transformers', with fields that are not ours."""
    return (
        is_dataclass(thing)
        and isinstance(thing, type)
        and "__dataclass_fields__" in vars(thing)
        and thing is not bermo.BermoConfig
    )


def _fields(thing: Any) -> str:
    rows = []
    for field in fields(thing):
        shown = f"{type(field.default).__name__}()" if is_dataclass(field.default) else repr(field.default)
        default = "" if field.default is MISSING else f"`{shown}`"
        if field.default_factory is not MISSING:
            default = f"`{getattr(field.default_factory, '__name__', 'a new one')}()`"
        rows.append(f"| `{field.name}` | {_cell(_type(field.type))} | {_cell(default)} |")
    return "\n| field | type | default |\n| --- | --- | --- |\n" + "\n".join(rows) + "\n"


def _type(kind: Any) -> str:
    return f"`{kind if isinstance(kind, str) else getattr(kind, '__name__', str(kind))}`"


def _signature(name: str, thing: Any) -> str:
    try:
        signature = str(inspect.signature(thing))
    except (TypeError, ValueError):
        signature = "(…)"
    if _has_fields(thing):
        signature = "(…)"
    signature = re.sub(r"<function (\w+) at 0x[0-9a-f]+>", r"\1", signature)
    signature = re.sub(r"<object object at 0x[0-9a-f]+>", "…", signature)
    return name + re.sub(r"\b(?:[a-z_]\w*\.)+(?=[A-Za-z])", "", signature)


def _prose(text: str) -> str:
    """Return a docstring as Markdown: examples and indented lines are kept, others wrapped again."""
    parts = []
    for part in re.split(r"\n\s*\n", text.strip()):
        lines = part.splitlines()
        if any(line.startswith((" ", "\t", ">>> ")) for line in lines):
            parts.append("```text\n" + textwrap.dedent(part) + "\n```")
        else:
            parts.append(_wrapped(_escaped(" ".join(lines))))
    return "\n\n".join(parts)


def _escaped(text: str) -> str:
    """Keep Markdown from reading letters that a docstring means."""
    return re.sub(r"(?<![`\w])([*_<])(?=\w)", r"\\\1", text)


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False))


def _sentence(text: str) -> str:
    return _wrapped(f"{text[0].upper()}{text[1:]}.")


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, default=OUT)
    options = parser.parse_args()
    made = pages()
    for name, text in made.items():
        path = options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    for path in options.out.rglob("*.md"):
        if path.relative_to(options.out).as_posix() not in made:
            path.unlink()
    print(f"{len(made)} pages in {options.out}")


if __name__ == "__main__":
    main()
