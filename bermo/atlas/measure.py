"""What one model of the atlas gives: score, loyalty, size and cost, kept beside its stages.

out/METHOD/seed-N/measured.json     and of the dense model its probabilities, answers.npy
"""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bermo.atlas.chain import Base, Chain, torch_model
from bermo.atlas.loyalty import Probabilities, loyalty
from bermo.atlas.methods import DENSE
from bermo.data.features import Features
from bermo.data.rows import TextRows
from bermo.data.scoring import score, softmax
from bermo.files import read_sealed, reading, whole_bytes, write_sealed
from bermo.pruning.fold import count
from bermo.runs.model_files import divergence
from bermo.runs.statistics import read_run
from bermo.runs.trained import open_trained
from bermo.ship.runtimes.candidate import answer, choose_device, open_candidate
from bermo.ship.runtimes.predict import Predictor
from bermo.ship.runtimes.texts import labelled
from bermo.typed import check_fields

MEASURED = "measured.json"
ROWS_A_CALL = 32
REMEDY = "Delete it, and the same command measures again."


@dataclass(frozen=True, kw_only=True)
class Measured:
    """One model on the validation rows; the score is in percent."""

    metric: str
    score: float
    same_labels: float
    same_probabilities: float
    megabytes: float
    parameters: int
    """Of the shape that is stored, zeros too."""
    nonzero: int
    """Without the zeros in prunable matrices."""
    seconds: float
    """Of its own trainings; the teacher's are not in it."""
    diverged: str | None = None


def measure(chain: Chain, base: Base, threads: int | None = None) -> Measured:
    """Measure the shipped model of a chain, unless that is done; with all cores, or so many threads."""
    path = chain.folder / MEASURED
    if path.exists():
        return read_measured(path)
    opened = open_trained(chain.shipped)
    features, probabilities = _answers(chain.shipped, base.valid, threads)
    scores = score(features, list(probabilities))
    known = loyalty(probabilities, teacher_answers(chain.seed, base))
    kept = count(open_trained(torch_model(chain, base)).load_model())
    measured = Measured(
        metric=scores.main,
        score=scores.score,
        same_labels=known.labels,
        same_probabilities=known.probabilities,
        megabytes=opened.num_bytes / 1e6,
        parameters=kept.model_total,
        nonzero=kept.model_kept,
        seconds=sum(read_run(run, (chain.seed,)).seeds[0].own_seconds for run in chain.trained),
        diverged=divergence(chain.trained[-1]) if chain.trained else None,
    )
    write_sealed(path, asdict(measured))
    return measured


def read_measured(path: Path) -> Measured:
    """Read what was measured of one model."""
    with reading(path, REMEDY):
        known = Measured(**read_sealed(path))
        check_fields(known)
        return known


def teacher_answers(seed: int, base: Base) -> Probabilities:
    """Return the probabilities that the dense model of a seed gives, computed once."""
    folder = base.out / DENSE / f"seed-{seed}"
    path = folder / "answers.npy"
    if not path.exists():
        _, probabilities = _answers(folder / "1-train", base.valid)
        with whole_bytes(path) as file:
            np.save(file, probabilities, allow_pickle=False)
    with reading(path, REMEDY):
        known: Probabilities = np.load(path, allow_pickle=False)
        return known


def teacher_logits(seed: int, rows: TextRows, base: Base) -> npt.NDArray[np.float32]:
    """Return the logits that the dense model of a seed gives to rows, (N, C)."""
    dense = Predictor(open_trained(base.out / DENSE / f"seed-{seed}" / "1-train"), batch_size=ROWS_A_CALL)
    return np.stack(dense.logits(rows)).astype(np.float32)


def _answers(folder: Path, valid: Path, threads: int | None = None) -> tuple[Features, Probabilities]:
    opened = open_trained(folder)
    features = labelled(opened, valid)
    candidate = open_candidate(opened, threads, device=choose_device(opened, "auto"))
    logits_NC = np.stack(answer(candidate, features, ROWS_A_CALL))
    return features, softmax(logits_NC)
