"""A student without layers: the mean of its pieces' own vectors, taught as other students are.

Each piece begins with the teacher's vector of that piece alone (as in model2vec); then all pieces learn from
the teacher's vectors of texts, by the cosine. It is the least that a sentence encoder can be.
"""

import json
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from bermo.data.metrics import spearman
from bermo.ship.runtimes.embed import SentenceEncoder

BATCH_SIZE, RATE, MOST_PIECES = 1024, 3e-3, 256
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


class StaticStudent:
    """The mean of vectors, one for each piece of a teacher's tokenizer."""

    def __init__(self, teacher: Path) -> None:
        self.teacher = SentenceEncoder(teacher)
        self.tokenizer = AutoTokenizer.from_pretrained(
            teacher, local_files_only=True, trust_remote_code=False
        )
        pieces = self.tokenizer.convert_ids_to_tokens(range(len(self.tokenizer)))
        alone = self.teacher.encode([piece.removeprefix("##") for piece in pieces])
        self.bag = nn.EmbeddingBag.from_pretrained(torch.from_numpy(alone), freeze=False, mode="mean").to(
            DEVICE
        )

    def forward(self, texts: list[str]) -> Tensor:
        """Return (N, D)."""
        ids = self.tokenizer(texts, add_special_tokens=False, truncation=True, max_length=MOST_PIECES)[
            "input_ids"
        ]
        ends = np.cumsum([0, *(len(row) for row in ids)])[:-1]
        flat = torch.tensor([piece for row in ids for piece in row], device=DEVICE)
        return self.bag(flat, torch.tensor(ends, device=DEVICE))  # type: ignore[no-any-return]

    def learn_(self, texts: list[str], epochs: int, seed: int) -> None:
        """Pull the vectors of texts to the teacher's."""
        wanted = torch.from_numpy(self.teacher.encode(texts)).to(DEVICE)
        optimiser = torch.optim.Adam(self.bag.parameters(), lr=RATE)
        order = np.random.default_rng(seed)
        for _ in range(epochs):
            for rows in np.array_split(order.permutation(len(texts)), max(1, len(texts) // BATCH_SIZE)):
                given = self.forward([texts[row] for row in rows])
                loss = 1 - torch.cosine_similarity(given, wanted[rows]).mean()
                optimiser.zero_grad()
                loss.backward()
                optimiser.step()

    @torch.no_grad()
    def encode(self, texts: list[str]) -> np.ndarray:
        """Return vectors of length 1."""
        return nn.functional.normalize(self.forward(texts)).cpu().numpy()  # type: ignore[no-any-return]

    def scores(self, files: dict[str, Path]) -> dict[str, float]:
        """Spearman on STS-B, nDCG@10 and recall@10 of a search with one right passage a question."""
        pairs, asked = ([json.loads(line) for line in files[name].read_text().splitlines()] for name in files)
        one, other = (self.encode([row[key] for row in pairs]) for key in ("text1", "text2"))
        passages = sorted({row["context"] for row in asked})
        likeness = self.encode([row["question"] for row in asked]) @ self.encode(passages).T
        right = likeness[np.arange(len(asked)), [passages.index(row["context"]) for row in asked]]
        place = 1 + (likeness > right[:, None]).sum(1)
        return {
            "spearman": 100 * spearman((one * other).sum(1), np.array([row["score"] for row in pairs])),
            "ndcg_10": 100 * float(np.where(place <= 10, 1 / np.log2(1 + place), 0).mean()),
            "recall_10": 100 * float((place <= 10).mean()),
        }
