"""Whether a step of each family can be held by a CUDA graph, which takes no copy from the CPU."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from bermo.encoders.position_bias import set_position_bias_
from bermo.models.config import BermoConfig
from bermo.models.tasks import BermoForSequenceClassification
from tests.tiny import FAMILIES, make_batch, make_config


class Copies(TorchDispatchMode):
    """Notes each copy from the CPU to a model that lies elsewhere; here it lies on no device at all."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        places = [
            {leaf.device.type for leaf in tree_leaves(values) if isinstance(leaf, Tensor)}
            for values in ((args, kwargs), out)
        ]
        if places == [{"cpu"}, {"meta"}]:
            self.found.append(str(function))
        return out


# torch knows no autocast for tensors without a device, which DeBERTa's own dropout asks for.
@pytest.mark.parametrize("family", [name for name in FAMILIES if name != "deberta"])
def test_a_step_copies_nothing_from_the_cpu(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # As in a capture, where transformers does not look at the values of a mask.
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    model = BermoForSequenceClassification(BermoConfig(make_config(family), mix=None)).to("meta")
    set_position_bias_(model)
    batch = {name: values.to("meta") for name, values in make_batch(family).items()}
    labels = torch.zeros(len(batch["input_ids"]), dtype=torch.long, device="meta")
    model(**batch, labels=labels)
    with Copies() as copies:
        model(**batch, labels=labels).loss.backward()
    assert copies.found == []
