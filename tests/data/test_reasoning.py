"""Pairs about facts, numbers and roles: balanced, right, and the same each time."""

import re
from collections import Counter

from bermo.data.reasoning import KINDS, draw_reasoning
from bermo.data.sentences import facts


def test_every_answer_is_as_often_right_as_wrong() -> None:
    pairs = draw_reasoning(40)
    assert pairs == draw_reasoning(40)
    assert Counter(pair.kind for pair in pairs) == dict.fromkeys(KINDS, 40)
    assert len({(pair.good, pair.bad) for pair in pairs}) == len(pairs)
    for kind in KINDS:
        if kind != "role reversal":
            chosen = [pair.control for pair in pairs if pair.kind == kind]
            assert Counter(control[0] for control in chosen if control) == Counter(
                control[1] for control in chosen if control
            )


def test_numbers_are_right_and_their_wrong_twins_wrong() -> None:
    for pair in draw_reasoning(40):
        values = [[int(word) for word in re.findall(r"\d+", text)] for text in (pair.good, pair.bad)]
        if pair.kind.startswith("addition"):
            assert values[0][0] + values[0][1] == values[0][2] != values[1][2]
            assert (values[0][2] > 20) == ("beyond" in pair.kind)
        if pair.kind.startswith("largest"):
            most = max if "largest" in pair.good else min
            assert most(values[0][:3]) == values[0][3]
            assert values[1][3] in values[1][:3]
            assert values[1][3] != values[0][3]
            assert (min(values[0]) >= 100) == ("beyond" in pair.kind)


def test_roles_are_the_same_words_and_facts_are_those_of_the_list() -> None:
    known = {("capitals", a, b) for a, b in facts.CAPITALS.items()}
    for pair in draw_reasoning(20):
        if pair.kind == "role reversal":
            assert Counter(re.findall(r"\w+", pair.good.lower())) == Counter(
                re.findall(r"\w+", pair.bad.lower())
            )
        if pair.kind == "capitals":
            match = re.fullmatch(r"The capital of (\w+) is (\w+)\.", pair.good)
            assert match
            assert ("capitals", *match.groups()) in known
        if pair.kind == "is-a":
            assert re.fullmatch(r"An? \w+ is an? [\w ]+\.", pair.good), pair.good
    assert all(len(set(table)) == len(table) for table in (facts.CAPITALS, facts.KINDS, facts.OPPOSITES))
    assert not set(facts.OPPOSITES) & set(facts.OPPOSITES.values())
