"""Maps of layers: what is a point, what is near, how maps are drawn."""

from pathlib import Path

import pytest
import torch

from bermo.analyse import maps
from bermo.analyse.maps import main_axes, map_section, measure_map, text_points, together, word_points
from bermo.analyse.run import analyse
from bermo.analyse.subject import Request
from bermo.figures.data import Points
from bermo.progress import Quiet
from bermo.vectors import Encoder
from tests.analyse.conftest import TEXTS
from tests.tiny import save_backbone


def test_every_use_of_a_word_is_a_point(encoder: Encoder) -> None:
    points = list(word_points(encoder, TEXTS, ["Cat", "dogs"], 32))
    uses = [word for text in TEXTS for word in text.split() if word in ("cat", "dogs")]
    assert sorted(point.group for point in points) == sorted(uses)
    assert all(point.group in point.name for point in points)


def test_groups_that_lie_apart_are_together_and_noise_is_at_chance() -> None:
    torch.manual_seed(0)
    groups = ["a"] * 40 + ["b"] * 40
    centres = torch.cat([torch.ones(40, 8), -torch.ones(40, 8)])
    assert together(centres + 0.1 * torch.randn(80, 8), groups) == 1
    assert together(torch.randn(80, 8), groups) == pytest.approx(0.5, abs=0.2)


def test_main_axes_keep_the_distances_of_points_in_a_plane() -> None:
    torch.manual_seed(0)
    flat = torch.randn(20, 2).double()
    turned = flat @ torch.linalg.qr(torch.randn(6, 6).double())[0][:2]
    torch.testing.assert_close(torch.cdist(main_axes(turned), main_axes(turned)), torch.cdist(flat, flat))


@pytest.mark.parametrize("has_library", [True, False])
def test_maps_are_made_with_and_without_the_library(
    mixed: Encoder, has_library: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(maps, "has_tsne", lambda: has_library)
    labels = {text: "cat" if "cat" in text else "other" for text in TEXTS}
    made = measure_map(mixed, list(text_points(mixed, TEXTS, labels, 32)))
    assert [plane.layer for plane in made.planes] == ["0", "1", "2", "3", "mix"]
    assert set(made.groups) == {"cat", "other"}
    section = map_section({"tiny": made})
    assert ("PCA" in str(section.figures[1].note)) is not has_library
    assert "chance" in section.text


def test_too_few_uses_are_said(tmp_path: Path) -> None:
    save_backbone("bert", tmp_path / "encoder")
    request = Request(
        models=(str(tmp_path / "encoder"),), texts=TEXTS, measures=("map",), map=("bad",), device="cpu"
    )
    (section,) = analyse(request, tmp_path / "few", Quiet()).sections
    assert "A map needs 5 points, but the texts have 2." in section.text
    whole = Request(
        models=(str(tmp_path / "encoder"),), texts=TEXTS, measures=("map",), map=("texts",), device="cpu"
    )
    (section,) = analyse(whole, tmp_path / "whole", Quiet()).sections
    assert sum(isinstance(figure, Points) for figure in section.figures) == 4
