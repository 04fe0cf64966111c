"""bermo show: a recipe's question, source, cost and spec."""

import inspect
from argparse import ArgumentParser, Namespace

from bermo.spec import leaves

HELP = "print a recipe: question, source, cost, spec"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("recipe")


def run(options: Namespace) -> int:
    from bermo.recipes import find

    recipe = find(options.recipe)
    print(inspect.cleandoc(recipe.__doc__ or ""))
    for arm, spec in recipe().arms.items():
        print(f"\n{arm}:")
        for leaf in leaves(spec):
            print(f"  {leaf.dotted:<26} {show_value(leaf.default)}")
    return 0


def show_value(value: object) -> str:
    """Write a field's value as its flag would take it."""
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)
