"""bermo list: the names of recipes and tasks."""

from argparse import ArgumentParser, Namespace

HELP = "name the recipes and tasks"


def add_options(parser: ArgumentParser) -> None:
    """Take none."""


def run(options: Namespace) -> int:
    from bermo.data.tasks import TASKS
    from bermo.recipes import RECIPES

    print("Recipes (bermo show NAME, bermo run NAME):")
    for name, recipe in RECIPES.items():
        print(f"  {name:<14} {_first_line(recipe.__doc__)}")
    print("\nTasks (bermo train --task NAME --data FOLDER; box/… need no files):")
    for name, task in TASKS.items():
        print(f"  {name:<26} {task.kind}, {task.metric}")
    return 0


def _first_line(text: str | None) -> str:
    return (text or "").strip().split("\n")[0]
