"""What small_data.py compares with: a linear probe on frozen vectors, and contrastive training as in SetFit.

    frozen   mean of the last layer's vectors -> logistic regression (classes, tags) or ridge (numbers)
    apart    of a pair u and v, each read alone: u, v, |u − v| and u · v, then as frozen
    setfit   Tunstall et al. 2022: the encoder learns that texts of one class are alike (cosine of 1) and
             others not (0), 20 pairs of each kind a text, one epoch, batch 16, rate 2e-5; then logistic
             regression

All choose the strength of the penalty by five folds of the training rows. Plain transformers: nothing of
bermo's is used but the rows.
"""

import random
from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor, nn

PENALTIES = (0.01, 0.1, 1.0, 10.0, 100.0)
FOLDS, MOST_PAIRS, PAIRS_A_TEXT, BATCH, RATE = 5, 8000, 20, 16, 2e-5
Texts = Sequence[tuple[str, ...]]


def mean_vectors(model: nn.Module, tokenizer: Callable, texts: Texts, max_length: int = 128) -> Tensor:
    """Return the mean vector of each text or pair of texts, in evaluation mode, on the CPU."""
    model.eval()
    found = []
    with torch.inference_mode():
        for start in range(0, len(texts), 64):
            inputs = tokens_of(model, tokenizer, texts[start : start + 64], max_length)
            found.append(pooled(model, inputs).float())
    return torch.cat(found).cpu()


def apart_vectors(model: nn.Module, tokenizer: Callable, pairs: Texts) -> Tensor:
    """Return what the vectors of two texts say of each other: both of length 1, |u − v| and u · v by unit."""
    columns = [[(text,) for text in column] for column in zip(*pairs, strict=True)]
    vectors = (mean_vectors(model, tokenizer, column) for column in columns)
    u, v = (nn.functional.normalize(vector, dim=-1) for vector in vectors)
    return torch.cat([u, v, (u - v).abs(), u * v, (u * v).sum(-1, keepdim=True)], dim=-1)


def tokens_of(model: nn.Module, tokenizer: Callable, texts: Texts, max_length: int) -> dict[str, Tensor]:
    """Tokenise texts or pairs for the model's device."""
    columns = [list(column) for column in zip(*texts, strict=True)]
    inputs = tokenizer(*columns, truncation=True, max_length=max_length, padding=True, return_tensors="pt")
    return {name: value.to(next(model.parameters()).device) for name, value in inputs.items()}


def pooled(model: nn.Module, inputs: dict[str, Tensor]) -> Tensor:
    """Return the mean of the last layer's vectors over the tokens of each text."""
    hidden = model(**inputs).last_hidden_state
    weights = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    mean: Tensor = (hidden * weights).sum(1) / weights.sum(1)
    return mean


class Linear:
    """Logistic regression on standardised vectors; the penalty is chosen by cross-validation."""

    def __init__(self, vectors: Tensor, targets: Tensor, is_number: bool = False) -> None:
        self.center, self.scale = vectors.mean(0), vectors.std(0) + 1e-6
        self.is_number = is_number
        self.fit = self.fit_ridge if is_number else self.fit_logistic
        inputs = self.prepare(vectors)
        folds = np.array_split(np.random.default_rng(0).permutation(len(targets)), FOLDS)
        quality = {c: sum(self.held_out(inputs, targets, fold, c) for fold in folds) for c in PENALTIES}
        self.weight = self.fit(inputs, targets, max(quality, key=lambda c: quality[c]))

    def prepare(self, vectors: Tensor) -> Tensor:
        scaled = ((vectors - self.center) / self.scale).double()
        return torch.cat([scaled, torch.ones_like(scaled[:, :1])], dim=1)

    def held_out(self, inputs: Tensor, targets: Tensor, fold: np.ndarray, penalty: float) -> float:
        is_in = torch.ones(len(targets), dtype=torch.bool, device=inputs.device)
        is_in[torch.from_numpy(fold)] = False
        outputs = inputs[~is_in] @ self.fit(inputs[is_in], targets[is_in], penalty)
        if self.is_number:
            return -float((outputs[:, 0] - targets[~is_in]).square().mean())
        return -float(nn.functional.cross_entropy(outputs, targets[~is_in]))

    def fit_logistic(self, inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
        weight = torch.zeros(
            inputs.shape[1], self.num_classes(targets), dtype=inputs.dtype, device=inputs.device
        )
        weight.requires_grad_(True)
        optimiser = torch.optim.LBFGS([weight], max_iter=200, line_search_fn="strong_wolfe")

        def loss() -> Tensor:
            optimiser.zero_grad()
            value = nn.functional.cross_entropy(inputs @ weight, targets, reduction="sum")
            value = (value + 0.5 * penalty * weight[:-1].square().sum()) / len(targets)
            value.backward()
            return value

        optimiser.step(loss)
        return weight.detach()

    def num_classes(self, targets: Tensor) -> int:
        self.classes = max(getattr(self, "classes", 0), int(targets.max()) + 1)
        return self.classes

    def fit_ridge(self, inputs: Tensor, targets: Tensor, penalty: float) -> Tensor:
        strength = penalty * torch.eye(inputs.shape[1], dtype=inputs.dtype, device=inputs.device)
        strength[-1, -1] = 0
        return torch.linalg.solve(inputs.T @ inputs + strength, inputs.T @ targets[:, None].to(inputs.dtype))

    def __call__(self, vectors: Tensor) -> np.ndarray:
        answers: np.ndarray = (self.prepare(vectors) @ self.weight).cpu().numpy()
        return answers


def contrast_(model: nn.Module, tokenizer: Callable, texts: Texts, targets: list[int], seed: int) -> None:
    """Train the encoder on pairs of texts of one class and of two."""
    rng = random.Random(seed)
    torch.manual_seed(seed)
    pairs = list(draw_pairs(targets, rng))
    num_steps = -(-len(pairs) // BATCH)
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=0.01)
    warm = max(1, num_steps // 10)
    plan = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min((step + 1) / warm, (num_steps - step) / max(1, num_steps - warm))
    )
    model.train()
    device = next(model.parameters()).device
    for step in range(num_steps):
        batch = pairs[step * BATCH : (step + 1) * BATCH]
        both = [texts[first] for first, _, _ in batch] + [texts[second] for _, second, _ in batch]
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            vectors = pooled(model, tokens_of(model, tokenizer, both, 128)).float()
        likeness = nn.functional.cosine_similarity(*vectors.chunk(2))
        wanted = torch.tensor([float(is_same) for _, _, is_same in batch], device=device)
        loss = (likeness - wanted).square().mean()
        optimiser.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimiser.step()
        plan.step()


def draw_pairs(targets: list[int], rng: random.Random) -> list[tuple[int, int, bool]]:
    """Return pairs (text, other text, of one class?), as many of each kind, at most MOST_PAIRS."""
    members: dict[int, list[int]] = {}
    for index, target in enumerate(targets):
        members.setdefault(target, []).append(index)
    others = {kind: [i for i, target in enumerate(targets) if target != kind] for kind in members}
    rounds = max(1, min(PAIRS_A_TEXT, MOST_PAIRS // (2 * len(targets))))
    pairs = []
    for _ in range(rounds):
        for index, target in enumerate(targets):
            pairs.append((index, rng.choice(members[target]), True))
            pairs.append((index, rng.choice(others[target]), False))
    rng.shuffle(pairs)
    return pairs[:MOST_PAIRS]
