"""Heads that follow relations: word attention by a slow loop, choices on one half, scores on the other."""

from pathlib import Path

import numpy as np
import pytest
import torch

from bermo.analyse.relations import (
    FollowedRelation,
    followed,
    follows,
    measure_relations,
    read_parsed,
    relations_section,
    word_attention,
)
from bermo.cli import main
from bermo.errors import BermoError
from bermo.figures.data import read_findings
from bermo.nn.words import membership
from bermo.vectors import load_encoder
from tests.trees import treebank


def test_word_attention_is_a_mean_over_pieces_of_sums_over_pieces() -> None:
    maps = torch.rand(2, 3, 6, 6, generator=torch.Generator().manual_seed(0)).softmax(-1)
    words = torch.tensor([[-1, 0, 0, 1, 2, -1], [-1, 0, 1, 1, -1, -1]])
    found = word_attention(maps, membership(words, 3))
    for text in range(2):
        for head in range(3):
            for first in range(int(words[text].max()) + 1):
                for second in range(int(words[text].max()) + 1):
                    ours = [t for t in range(6) if words[text, t] == first]
                    theirs = [t for t in range(6) if words[text, t] == second]
                    slow = np.mean([sum(float(maps[text, head, a, b]) for b in theirs) for a in ours])
                    assert float(found[text, head, first, second]) == pytest.approx(slow, rel=1e-5)


def test_heads_and_offsets_are_scored_on_the_half_that_did_not_choose_them() -> None:
    # Head 2 of layer 1 is right on both halves; head 1 of layer 2 on the first alone, and by luck more often.
    right = []
    for row in range(120):
        hits = np.zeros((2, 2, 2), dtype=bool)
        hits[0, 0, 1] = row % 10 != 0
        hits[1, 1, 0] = row % 2 == 0
        right.append(hits)
    facts = followed(["nsubj"] * 120, [k % 2 for k in range(120)], [1, 1, 1, -1] * 30, right, 60)
    found = facts.relations[0]
    assert (found.layer, found.head, found.direction) == (2, 1, "from the head")
    assert found.right == 0
    assert found.offset == 1
    assert found.offset_right == 50
    assert not follows(found)


def test_few_words_of_a_relation_are_an_error() -> None:
    with pytest.raises(BermoError, match="No relation has 20 words or more in each half"):
        followed(["obj"] * 10, [0, 1] * 5, [1] * 10, [np.zeros((2, 1, 1), dtype=bool)] * 10, 10)


def test_relations_of_a_treebank_are_measured_and_drawn(tmp_path: Path) -> None:
    path = tmp_path / "my.conllu"
    path.write_text(treebank(60))
    facts = measure_relations(load_encoder("box", device="cpu"), read_parsed(path, 60), 64)
    assert {row.relation for row in facts.relations} == {"det", "nsubj", "obj", "amod"}
    det = next(row for row in facts.relations if row.relation == "det")
    assert det.offset == 1
    assert det.words == 60
    assert det.interval[0] <= det.right <= det.interval[1]
    section = relations_section({"box": facts})
    assert "4 relations in 60 sentences" in section.text
    assert isinstance(facts.relations[0], FollowedRelation)


def test_the_command_needs_no_texts_for_relations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my.conllu").write_text(treebank(50))
    command = ["analyse", "box", "--measures", "relations", "--device", "cpu"]
    assert main([*command, "--trees", "my.conllu", "--out", "look"]) == 0
    assert read_findings(Path("look/figures.json")).sections[0].title == "Heads and relations"
    assert main([*command, "--out", "other"]) == 2
    assert "relations --trees" in capsys.readouterr().err
