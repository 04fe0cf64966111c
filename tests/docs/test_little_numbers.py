"""What results/README.md says of the contrast of classes on CoLA is what its files hold."""

from statistics import fmean

import pytest

from scripts.tables.numbers import read
from tests.docs.documents import ROOT

REPORTED, CHOOSING = "small-data.json", "small-data-choosing.json"


def mean(file: str, way: str) -> str:
    return f"{fmean(read(file)['encoders']['mpnet']['cola-200'][way]['scores']):.1f}"


def both(way: str) -> str:
    return f"{mean(REPORTED, way)} and {mean(CHOOSING, way)}"


@pytest.mark.parametrize(
    "sentence",
    [
        f"mpnet-base has {mean(CHOOSING, 'bermo')} by it and {mean(CHOOSING, 'pairs-alike')} without",
        f"ten times the contrast with 32 rows a step {mean(REPORTED, 'pull')},"
        f" 32 rows a step {mean(REPORTED, 'rows')},"
        f" the later one of equal evaluations {mean(REPORTED, 'later')}",
        f"32 rows a step {both('pairs-alike-rows')}, with ten times the contrast {both('pairs-alike-pull')},"
        f" no mix {both('pairs-alike-nomix')},"
        f" a new linear probe as the head of each evaluation {both('pairs-alike-refit')}",
    ],
)
def test_a_sentence_has_the_numbers_of_its_file(sentence: str) -> None:
    assert sentence in " ".join((ROOT / "results" / "README.md").read_text(encoding="utf-8").split())
