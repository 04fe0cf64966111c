"""bermo show: a recipe's question, source, cost and spec."""

import inspect
from dataclasses import dataclass

from bermo.fields import leaves, positional
from bermo.verbs.options import show_value
from bermo.verbs.recipe import find_recipe
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Which recipe."""

    recipe: str = positional("its name (bermo list)")


def run(options: ShowOptions) -> int:
    recipe = find_recipe(options.recipe)
    print(inspect.cleandoc(recipe.__doc__ or ""))
    for arm, spec in recipe().arms.items():
        print(f"\n{arm}:")
        for leaf in leaves(spec):
            print(f"  {leaf.dotted:<26} {show_value(leaf.default)}")
    return 0


VERB = Verb(help="print a recipe: question, source, cost, spec", options=ShowOptions, run=run)
