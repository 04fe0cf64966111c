"""bermo demo: the recipe in the box, offline."""

from dataclasses import dataclass
from pathlib import Path

from bermo.fields import option
from bermo.verbs.recipe import run_experiment
from bermo.verbs.verb import Verb

DEMO_NOTE = """
The questions were whether a sentence's subject, and its object, is singular or
plural. Guessing gives 50, a bag of words about 70. untrained: the same shape
from random weights. plain and mix: the pretrained encoder in the box. One seed
does not show whether the mix helps; several do (--seeds 5).
"""
NEXT_STEPS = """
What to do next:
  bermo train --train my.csv --out runs/mine   your own texts and labels
  bermo train … --mix none                     the plain encoder, as a baseline
  bermo train … --seeds 5                      mean and interval over five seeds
  bermo predict runs/mine texts.txt            use what you trained
  bermo list                                   recipes and tasks"""


@dataclass(frozen=True, kw_only=True)
class DemoOptions:
    """Where the results go."""

    out: Path = option(Path("runs/demo"), "folder of the run")


def run(options: DemoOptions) -> int:
    from bermo.recipes import find

    code = run_experiment("demo", find("demo")(), options.out)
    if code == 0:
        print(DEMO_NOTE + NEXT_STEPS)
    return code


VERB = Verb(help="train untrained, plain and mixed side by side, offline", options=DemoOptions, run=run)
