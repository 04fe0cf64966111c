"""Trees end to end on a tiny treebank: UUAS by a slow count, scores of every layer, figures, the command."""

from pathlib import Path

import numpy as np
import pytest

from bermo.cli import main
from bermo.data.trees import spanning_trees, tree_depths, tree_distances
from bermo.data.word_tasks import open_source
from bermo.figures.data import Arcs, read_findings
from bermo.figures.draw import to_svg
from bermo.methods.probing import trees as probing
from bermo.methods.probing.tree_scores import Tree, score, score_layers
from bermo.methods.probing.trees import read_trees, tree_digest
from bermo.nn import structural
from bermo.nn.structural import TreeSettings
from tests.trees import treebank


def tree(heads: tuple[int, ...], kept: tuple[int, ...]) -> Tree:
    words = tuple(f"w{k}" for k in range(len(heads)))
    far, deep = tree_distances(heads), tree_depths(heads)
    return Tree(words=words, heads=heads, kept=kept, begin=0, distances=far, depths=deep)


def test_true_distances_score_everything() -> None:
    some = [tree((1, 2, -1, 2, 2), (0, 1, 2, 3)), tree((-1, 0, 1, 2, 3), (0, 1, 2, 3, 4))]
    found = score(some, [item.distances for item in some], [item.depths for item in some])
    assert found.uuas == found.root == 100
    assert found.distance_spearman == found.depth_spearman == pytest.approx(1)
    # Two sentences say little.
    assert found.uuas_interval == pytest.approx((34.2, 100), abs=0.1)


def test_uuas_is_the_share_of_true_edges_without_punctuation() -> None:
    random = np.random.default_rng(0)
    some = [tree((1, 2, -1, 2, 3, 2), (0, 1, 2, 3, 4)), tree((-1, 0, 0, 2), (0, 1, 2, 3))]
    distances = []
    for item in some:
        drawn = random.random((len(item.heads),) * 2)
        distances.append(drawn + drawn.T)
    right = total = 0
    for item, predicted in zip(some, distances, strict=True):
        edges = spanning_trees(predicted[None], item.kept)[0]
        for at, head in enumerate(item.heads):
            if head >= 0 and at in item.kept and head in item.kept:
                total += 1
                right += (min(at, head), max(at, head)) in edges
    assert score(some, distances).uuas == pytest.approx(100 * right / total)


def test_layers_scored_together_have_the_scores_of_each_alone() -> None:
    random = np.random.default_rng(0)
    some = [tree((1, 2, -1, 2, 3, 2), (0, 1, 2, 3, 4)), tree((-1, 0, 0, 2, 3), (0, 1, 2, 3, 4))]
    distances = [random.random((3, len(item.heads), len(item.heads))) for item in some]
    depths = [random.random((3, len(item.heads))) for item in some]
    together = score_layers(some, distances, depths)
    for layer, scores in enumerate(together):
        assert scores == score(some, [item[layer] for item in distances], [item[layer] for item in depths])
    assert together[0] != together[1]


def test_a_command_scores_every_layer_and_draws_trees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(structural, "LEAST_STEPS", 2)
    monkeypatch.setattr(probing, "TreeSettings", lambda rank, seed: TreeSettings(rank=rank, epochs=2))
    monkeypatch.chdir(tmp_path)
    Path("my.conllu").write_text(treebank(40))
    command = ["probe", "--words", "my.conllu", "--tasks", "tree", "--rank", "4", "--out", "out"]
    command += ["--max-unknown", "1"]
    assert main(command) == 0
    assert "linear chain" in capsys.readouterr().out
    probed = read_trees(Path("out/tree.json"), tree_digest(open_source(Path("my.conllu"))))
    assert probed is not None
    assert len(probed.scores) == len(probed.untrained) == len(probed.layers) == len(probed.dev_uuas)
    assert probed.rank == 4
    # The words of "the dog saw a film" that stand beside their heads.
    assert 50 <= probed.chain.uuas <= 100
    assert probed.chain.root is None
    figures = [f for section in read_findings(Path("out/figures.json")).sections for f in section.figures]
    drawn = [figure for figure in figures if isinstance(figure, Arcs)]
    assert drawn
    assert to_svg(drawn[0]).count("<path") == len(drawn[0].above) + len(drawn[0].below) + 2
    assert main(command) == 0
    assert main([*command, "--rank", "5"]) == 2
    assert "rank" in capsys.readouterr().err
