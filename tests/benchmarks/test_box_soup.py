"""The mean of the box and another encoder: each weight by name, and a head that the other lacks as it was."""

import torch

from benchmarks.box_soup import weigh


def test_weights_are_weighed_by_name_and_keep_their_precision() -> None:
    layer, bias = torch.tensor([0.0, 2.0], dtype=torch.float16), torch.tensor([3.0])
    box = {"bert.layer.weight": layer, "cls.bias": bias}
    other = {"layer.weight": torch.tensor([1.0, 4.0])}
    mixed = weigh(box, other, 0.25)
    assert mixed["bert.layer.weight"].tolist() == [0.25, 2.5]
    assert mixed["bert.layer.weight"].dtype == torch.float16
    assert mixed["cls.bias"] is bias
