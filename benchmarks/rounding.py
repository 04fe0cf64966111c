"""How far rounding alone moves the gradients of a batch: torch's own bf16 pass on a CPU, no kernel of ours.

    python benchmarks/rounding.py MODEL MRPC [--out results/rounding-x86.json]

MODEL is an encoder's folder, MRPC that of msr_paraphrase_train.txt. Its first 1,500 pairs give a batch of 32
for each length; mean pooling, a head fitted to the frozen encoder, no dropout. `fp32`: how far the gradients
in bf16 are from those in fp32; `shaken`: from those in bf16 with weights that are moved at random by half a
unit of rounding. Each is that of the kind of parameter that is furthest off, relative to its own gradient or
to a hundredth of all (bermo/training/gradient_gap.py).
"""

import argparse
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoModel, AutoTokenizer

from bermo.files import write_json
from bermo.machine import processor
from bermo.training.gradient_gap import gradient_gap

LENGTHS = (40, 48, 56, 64, 72, 104)
ROWS, PAIRS, SHAKES = 32, 1500, 2
HALF_UNIT = torch.finfo(torch.bfloat16).eps / 2

Batch = tuple[Tensor, Tensor, Tensor]


class Classifier(nn.Module):
    """An encoder, the mean of its tokens, and a head of two classes."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(folder, dtype=torch.float32).train()
        for module in self.encoder.modules():
            if isinstance(module, nn.Dropout):
                module.p = 0.0
        self.head = nn.Linear(self.encoder.config.hidden_size, 2)

    def pooled(self, ids: Tensor, mask: Tensor) -> Tensor:
        hidden = self.encoder(input_ids=ids, attention_mask=mask).last_hidden_state
        return (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)

    def gradients(self, batch: Batch, is_half: bool) -> list[Tensor | None]:
        self.zero_grad()
        ids, mask, labels = batch
        with torch.autocast("cpu", torch.bfloat16, enabled=is_half):
            logits = self.head(self.pooled(ids, mask))
        functional.cross_entropy(logits.float(), labels).backward()
        return [None if p.grad is None else p.grad.clone() for p in self.parameters()]


def read_batches(folder: Path, data: Path) -> dict[int, Batch]:
    """Return a batch of pairs for each length, padded to it."""
    lines = (data / "msr_paraphrase_train.txt").read_text(encoding="utf-8-sig").splitlines()[1:]
    rows = [row for row in (line.split("\t") for line in lines) if len(row) == 5][:PAIRS]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    known = [(int(row[0]), tokenizer(row[3], row[4])["input_ids"]) for row in rows]
    found = {}
    for length in LENGTHS:
        chosen = [one for one in known if length - 8 < len(one[1]) <= length][:ROWS]
        ids = torch.full((len(chosen), length), tokenizer.pad_token_id)
        for row, (_, tokens) in enumerate(chosen):
            ids[row, : len(tokens)] = torch.tensor(tokens)
        mask = torch.tensor([[1] * len(t) + [0] * (length - len(t)) for _, t in chosen])
        found[length] = (ids, mask, torch.tensor([label for label, _ in chosen]))
    return found


def fit_head_(model: Classifier, batches: dict[int, Batch]) -> None:
    """Fit the head to what the frozen encoder gives."""
    with torch.no_grad():
        inputs = torch.cat([model.pooled(ids, mask) for ids, mask, _ in batches.values()])
    labels = torch.cat([labels for *_, labels in batches.values()])
    optimizer = torch.optim.LBFGS(model.head.parameters(), max_iter=100)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = functional.cross_entropy(model.head(inputs), labels)
        loss = loss + 1e-2 * model.head.weight.square().sum()
        loss.backward()
        return loss

    optimizer.step(closure)


def shaken_gradients(model: Classifier, batch: Batch, seed: int) -> list[Tensor | None]:
    """Return the gradients in bf16 of weights that are moved, and put these back."""
    kept = [p.detach().clone() for p in model.parameters()]
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            if p.dim() > 1:
                p.mul_(1 + HALF_UNIT * (2 * torch.rand(p.shape, generator=generator) - 1))
    found = model.gradients(batch, True)
    with torch.no_grad():
        for p, value in zip(model.parameters(), kept, strict=True):
            p.copy_(value)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model", type=Path)
    parser.add_argument("mrpc", type=Path)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    torch.manual_seed(0)
    model, batches = Classifier(options.model), read_batches(options.model, options.mrpc)
    fit_head_(model, batches)
    names = [name for name, _ in model.named_parameters()]
    rows = []
    for length, batch in batches.items():
        half, exact = model.gradients(batch, True), model.gradients(batch, False)
        shaken = [gradient_gap(names, half, shaken_gradients(model, batch, n)) for n in range(SHAKES)]
        rows.append(
            {
                "length": length,
                "fp32": round(gradient_gap(names, exact, half), 3),
                "shaken": [round(gap, 3) for gap in shaken],
            }
        )
        print(rows[-1], flush=True)
    if options.out is not None:
        facts = {"machine": processor().name, "torch": torch.__version__, "model": options.model.name}
        write_json(options.out, facts | {"rows": rows})


if __name__ == "__main__":
    main()
