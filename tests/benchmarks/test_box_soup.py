"""The mean of two encoders: each weight by name, and a head that the other lacks as it was."""

import pytest
import torch

from benchmarks.box_soup import weigh


@pytest.mark.parametrize("prefix", ["", "bert.", "bermo.backbone."])
def test_weights_are_weighed_by_name_and_keep_their_precision(prefix: str) -> None:
    layer, bias = torch.tensor([0.0, 2.0], dtype=torch.float16), torch.tensor([3.0])
    base = {"bert.layer.weight": layer, "cls.bias": bias}
    mixed = weigh(base, {f"{prefix}layer.weight": torch.tensor([1.0, 4.0])}, 0.25)
    assert mixed["bert.layer.weight"].tolist() == [0.25, 2.5]
    assert mixed["bert.layer.weight"].dtype == torch.float16
    assert mixed["cls.bias"] is bias
