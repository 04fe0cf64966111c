"""bermo show: a recipe's question, source, cost and spec."""

import inspect
import re
from dataclasses import dataclass

from bermo.fields import leaves, positional
from bermo.printing import wrapped
from bermo.verbs.options import show_value
from bermo.verbs.recipe import find_recipe
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class ShowOptions:
    """Which recipe."""

    recipe: str = positional("its name (bermo list)")


def run(options: ShowOptions) -> int:
    recipe = find_recipe(options.recipe)
    for paragraph in _paragraphs(inspect.cleandoc(recipe.__doc__ or "")):
        print(wrapped(paragraph))
    for arm, spec in recipe().arms.items():
        print(f"\n{arm}:")
        for leaf in leaves(spec):
            print(wrapped(show_value(leaf.default), f"  {leaf.dotted:<26} "))
    return 0


def _paragraphs(text: str) -> list[str]:
    """Join the lines of a docstring up to an empty one or to one such as "Source: …" and "Cost: …"."""
    return re.split(r"\n(?=\n|[A-Z]\w*:)|(?<=\n)\n", text)


VERB = Verb(help="print a recipe: question, source, cost, spec", options=ShowOptions, run=run)
