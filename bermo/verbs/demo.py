"""bermo demo: the recipe in the box, offline."""

from argparse import ArgumentParser, Namespace
from pathlib import Path

from bermo.verbs.recipe import run_experiment

HELP = "train untrained, plain and mixed side by side, offline"


def add_options(parser: ArgumentParser) -> None:
    parser.add_argument("--out", default="runs/demo", help="folder of the run (runs/demo)")


def run(options: Namespace) -> int:
    from bermo.recipes import find

    code = run_experiment(find("demo")(), Path(options.out))
    if code == 0:
        print(DEMO_NOTE + NEXT_STEPS)
    return code


DEMO_NOTE = """
The questions were whether a sentence's subject, and its object, is singular or plural. Guessing gives 50, a bag of words about 70.
untrained: the same shape from random weights. plain and mix: the pretrained encoder in the box. This is one seed: whether the mix helps is
not shown by it (--seeds asks that).
"""
NEXT_STEPS = """
What to do next:
  bermo train --train my.csv --valid dev.csv --out runs/mine     your own texts and labels
  bermo train … --mix none                                       the plain encoder, as a baseline
  bermo train … --seeds 5                                        mean and interval over five seeds
  bermo predict runs/mine texts.txt                              use what you trained
  bermo list                                                     recipes and tasks"""
