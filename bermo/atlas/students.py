"""Students without a Transformer, taught by the dense model of their seed: bilstm and static-mlp.

    loss = mean (student's logit − teacher's logit)²      no labels; Tang et al. 2019, their batch and rates

Word vectors start as the encoder's own and are trained; tokens are the encoder's. The authors have a second,
fixed copy of the vectors beside the trained one, and 20 variants of each text, which are left out here. A
student is arrays in a folder; what is measured is what was read back from there. On a CPU the same seed, rows
and teacher give the same arrays again.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from bermo.atlas import published
from bermo.atlas.baselines import ARRAYS, Answers, Array
from bermo.atlas.loyalty import Probabilities
from bermo.atlas.steps import Published
from bermo.data.rows import TextRows
from bermo.data.scoring import softmax
from bermo.encoders.backbone import load_encoder, load_tokenizer
from bermo.files import read_sealed, reading, whole_folder, write_sealed
from bermo.nn.students import Reading, Texts, WordStudent

FACTS = "student.json"
BATCH, EPOCHS, RATE, DECAY = 50, 30, 5e-4, 1e-3
ROWS_A_CALL = 256
REMEDY = "Delete its folder, and the same command trains it again."


@dataclass(frozen=True, kw_only=True)
class Student:
    """A student that is trained into a folder and read from there."""

    name: str
    summary: str
    reads: Reading
    published: tuple[Published, ...]


def fit_student(
    kind: Student,
    rows: TextRows,
    teacher_NC: Array,
    encoder: str,
    seed: int,
    out: Path,
    device: str = "cpu",
) -> None:
    """Train a student by its teacher's logits of the rows into a folder, unless that is done."""
    if out.exists():
        return
    started = time.perf_counter()
    with torch.random.fork_rng(devices=[] if device == "cpu" else [torch.cuda.current_device()]):
        # Before the encoder: one of a config alone has random vectors.
        torch.manual_seed(seed)
        words = cast(nn.Embedding, load_encoder(encoder).encoder.get_input_embeddings())
        model = WordStudent(
            kind.reads, words.weight.detach().float(), teacher_NC.shape[1], rows.second is not None
        )
        teacher = torch.from_numpy(teacher_NC).float().to(device)
        _train_(model.to(device), _sides(rows, load_tokenizer(encoder)), teacher, seed)
    with whole_folder(out) as folder:
        state = model.cpu().state_dict()
        np.savez(folder / ARRAYS, **{name: tensor.numpy() for name, tensor in state.items()})
        facts = {"reads": kind.reads, "has_pairs": rows.second is not None}
        write_sealed(folder / FACTS, facts | {"seconds": round(time.perf_counter() - started, 2)})


def read_student(folder: Path, encoder: str) -> Answers:
    """Return a student that answers, from its arrays."""
    facts, tokenizer = _facts(folder), load_tokenizer(encoder)
    with reading(folder / ARRAYS, REMEDY), np.load(folder / ARRAYS, allow_pickle=False) as arrays:
        state = {name: torch.from_numpy(arrays[name]) for name in arrays}
        model = WordStudent(facts["reads"], state["words.weight"], len(state["out.bias"]), facts["has_pairs"])
        model.load_state_dict(state)
    model.eval()

    def answers(rows: TextRows) -> Probabilities:
        sides = _sides(rows, tokenizer)
        parts = np.array_split(np.arange(len(rows)), len(rows) // ROWS_A_CALL + 1)
        with torch.inference_mode():
            logits = [model([_batch(side, part) for side in sides]).numpy() for part in parts if len(part)]
        return softmax(np.concatenate(logits))

    return answers


def training_seconds(folder: Path) -> float:
    """How long a student was trained."""
    return float(_facts(folder)["seconds"])


def _facts(folder: Path) -> dict[str, Any]:
    with reading(folder / FACTS, REMEDY):
        facts: dict[str, Any] = read_sealed(folder / FACTS)
        return facts


def _train_(model: WordStudent, sides: Sequence[list[Tensor]], teacher_NC: Tensor, seed: int) -> None:
    """Bring the student's logits to the teacher's, in place; the order of epoch e follows from seed and e."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=DECAY)
    model.train()
    for epoch in range(EPOCHS):
        order = np.random.default_rng([seed, epoch]).permutation(len(teacher_NC))
        for start in range(0, len(order), BATCH):
            rows = order[start : start + BATCH]
            some = torch.from_numpy(rows).to(teacher_NC.device)
            logits_BC = model([_batch(side, rows, teacher_NC.device) for side in sides])
            loss = nn.functional.mse_loss(logits_BC, teacher_NC[some])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def _sides(rows: TextRows, tokenizer: Any) -> list[list[Tensor]]:
    """Return the token ids of each text, of the first side of pairs and of the second."""
    texts = [rows.first] if rows.second is None else [rows.first, rows.second]
    unknown = [tokenizer.unk_token_id or 0]
    return [
        [
            torch.tensor(ids or unknown)
            for ids in tokenizer(list(side), add_special_tokens=False, truncation=True)["input_ids"]
        ]
        for side in texts
    ]


def _batch(side: Sequence[Tensor], rows: np.ndarray, device: torch.device | None = None) -> Texts:
    some = [side[row] for row in rows]
    padded = nn.utils.rnn.pad_sequence(some, batch_first=True)
    return padded.to(device), torch.tensor([len(ids) for ids in some]).to(device)


STUDENTS: Mapping[str, Student] = {
    kind.name: kind
    for kind in (
        Student(
            name="bilstm",
            summary="word vectors and one LSTM a direction, taught by the dense model's logits",
            reads="bilstm",
            published=(published.BILSTM,),
        ),
        Student(
            name="static-mlp",
            summary="the mean of trained word vectors and one layer, taught by the dense model's logits",
            reads="mean",
            published=(published.STATIC,),
        ),
    )
}
