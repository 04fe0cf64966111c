"""bermo list: the names of recipes and tasks."""

from dataclasses import dataclass

from bermo.printing import wrapped
from bermo.verbs.verb import Verb


@dataclass(frozen=True, kw_only=True)
class ListOptions:
    """There are none."""


def run(options: ListOptions) -> int:
    from bermo.data.tasks import TASKS
    from bermo.recipes import RECIPES

    print("Recipes (bermo show NAME, bermo run NAME):")
    width = max(map(len, RECIPES)) + 2
    for name, recipe in RECIPES.items():
        print(wrapped(_first_line(recipe.__doc__), f"  {name:<{width}}"))
    print("\nTasks (bermo train --task NAME --data FOLDER; box/… need no files):")
    width = max(map(len, TASKS)) + 2
    for name, task in TASKS.items():
        print(f"  {name:<{width}}{task.kind}, {task.metric}")
    return 0


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]


VERB = Verb(help="name the recipes and tasks", options=ListOptions, run=run)
