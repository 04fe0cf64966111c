"""A sentence encoder made small without labels: its own vectors of the user's texts teach the student.

    texts -> some held out -> pairs of these with the teacher's cosine (or the user's pairs) -> the score
    student: some of the teacher's layers, evenly spread, and a share of every layer's neurons; 1 − cos is
    learned. Stock code can build it, so that it is saved as a folder of sentence-transformers.

How far a small model agrees with its teacher on the texts that were held out:

    cosine        mean of cos(teacher, student) over texts
    Spearman      of the cosines of all pairs of texts
    neighbours    share of each text's ten nearest texts that stay among the ten nearest

Reimers and Gurevych 2020 (a student of sentence vectors), Sanh et al. 2019 (one of the teacher's layers).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from bermo.data import metrics
from bermo.data.apart import apart_columns, apart_rows, read_texts
from bermo.data.ranking import unit
from bermo.encoders.sentence import is_sentence_folder
from bermo.errors import BermoError
from bermo.fields import check
from bermo.files import whole_folder, write_text
from bermo.nn.losses import even_map
from bermo.printing import percent
from bermo.progress import Display
from bermo.runs.task_file import write_task
from bermo.runs.trained import TrainedFolder, open_sentence_encoder, open_trained
from bermo.ship.compress.plan import AROUND, Arm, Plan
from bermo.ship.compress.spec import CompressSpec
from bermo.ship.runtimes.embed import SentenceEncoder
from bermo.spec import DataSpec, DistillSpec, MixSpec, ModelSpec, RunSpec
from bermo.sums import write_sums

Vectors = npt.NDArray[np.floating]
HELD_OUT, MOST_HELD_OUT, FEWEST_TEXTS = 0.1, 1000, 100
NEIGHBOURS = 10
DEEPER = 1.5
ATTENTION = 1 / 3
"""What attention takes of a layer's weights where it has four times as many neurons as units."""
LEAST_NEURONS = 0.125


@dataclass(frozen=True, kw_only=True)
class Taught:
    """What the trainings of a compression share: the teacher, its texts, and what scores a student."""

    teacher: Path
    run: RunSpec
    held_out: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Agreement:
    """How far the vectors of a model are those of its teacher, 0 to 1."""

    cosine: float
    spearman: float
    neighbours: float


def open_source(spec: CompressSpec) -> TrainedFolder:
    """Open the model that is to become small; texts without labels are for sentence encoders."""
    if spec.texts is None:
        opened = open_trained(spec.run)
        if opened.trained.task.kind == "embedding":
            raise BermoError(
                f"{spec.run} is a sentence encoder. Pass --texts FILE with some of your texts, from which its"
                " own vectors teach a smaller one."
            )
        return opened
    opened = open_sentence_encoder(spec.run)
    known = (
        open_trained(spec.run).trained.task.kind if (opened.folder / "task.json").exists() else "embedding"
    )
    if known != "embedding":
        raise BermoError(f"{spec.run} is a model for {known}, not a sentence encoder. Leave --texts out.")
    return opened


def enough_texts(path: Path) -> Sequence[str]:
    """Return the different texts of a file; too few are an error."""
    texts = _distinct(read_column(path))
    if len(texts) < FEWEST_TEXTS:
        raise BermoError(f"{path} has {len(texts)} different texts; at least {FEWEST_TEXTS} are needed.")
    return texts


def prepare_taught(
    spec: CompressSpec, texts: Sequence[str], source: TrainedFolder, work: Path, display: Display
) -> Taught:
    """Divide the texts, let the teacher score pairs of those held out, and return what is trained."""
    train, held_out = hold_out(texts[: spec.limit])
    teacher = prepared_teacher(source, work / source.folder.name)
    valid = work / "valid.jsonl"
    if not (work / "train.jsonl").exists():
        write_text(work / "train.jsonl", "".join(json.dumps({"text": text}) + "\n" for text in train))
    if spec.valid is None and not valid.exists():
        display.tell(
            f"{len(held_out):,} of {len(texts):,} texts are held out: pairs of them score a student."
        )
        write_pairs(SentenceEncoder(teacher).encode(held_out), held_out, valid)
    data = DataSpec(
        task="own/embedding",
        train=str(work / "train.jsonl"),
        valid=spec.valid or str(valid),
        max_length=max(8, source.trained.max_length),
    )
    run = RunSpec(model=ModelSpec(mix=MixSpec(kind="none")), data=data)
    run = replace(run, train=replace(run.train, **spec.training))
    return Taught(teacher=teacher, run=check(run), held_out=tuple(held_out))


def prepared_teacher(source: TrainedFolder, folder: Path) -> Path:
    """Return a folder that says how vectors are made: the user's own, or one that is written."""
    if is_sentence_folder(source.folder) or (source.folder / "task.json").exists():
        return source.folder
    if not folder.exists():
        with whole_folder(folder) as temporary:
            source.load_model().save_pretrained(temporary)
            source.load_tokenizer().save_pretrained(temporary)
            write_task(temporary, source.trained)
            write_sums(temporary)
    return folder


def read_column(path: Path) -> list[str]:
    """Return the texts of a file: its lines, or the first of its columns of texts."""
    table = read_texts(path)
    columns = apart_columns(table, None, None)
    return [texts[0] for texts in apart_rows(table, replace(columns, label=None)).texts]


def hold_out(texts: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the texts that teach and those that score, drawn from the whole file, always the same ones."""
    count = min(MOST_HELD_OUT, max(2 * NEIGHBOURS, int(HELD_OUT * len(texts))))
    drawn = set(np.random.default_rng(0).permutation(len(texts))[:count].tolist())
    train = [text for index, text in enumerate(texts) if index not in drawn]
    return train, [text for index, text in enumerate(texts) if index in drawn]


def write_pairs(vectors: Vectors, texts: Sequence[str], path: Path) -> None:
    """Pair every text with its nearest, with a near one and with any other, and with the teacher's cosine."""
    scores_NN = unit(vectors) @ unit(vectors).T
    np.fill_diagonal(scores_NN, -np.inf)
    order_NN = np.argsort(-scores_NN, axis=1, kind="stable")
    anywhere = np.random.default_rng(0).integers(NEIGHBOURS, len(texts) - 1, len(texts))
    lines = []
    for row, other in enumerate(anywhere):
        for rank in (0, NEIGHBOURS - 1, int(other)):
            column = int(order_NN[row, rank])
            pair = {"text1": texts[row], "text2": texts[column], "score": float(scores_NN[row, column])}
            lines.append(json.dumps(pair, ensure_ascii=False))
    write_text(path, "\n".join(lines) + "\n")


def sentence_arms(plan: Plan) -> list[Arm]:
    """Return students around the budget: whole layers, and more layers with fewer neurons."""
    arms = []
    for times in AROUND:
        budget = plan.budget * times
        arms.append(Arm(layers=min(plan.layers, max(1, round(budget)))))
        depth = min(plan.layers, max(1, round(budget * DEEPER)))
        share = (budget / depth - ATTENTION) / (1 - ATTENTION)
        if share < 1:
            arms.append(Arm(layers=depth, neurons=max(LEAST_NEURONS, round(8 * share) / 8)))
    smaller = [arm for arm in arms if arm.layers < plan.layers or arm.neurons < 1]
    return list(dict.fromkeys(smaller))


def sentence_arm_spec(arm: Arm, run: RunSpec, teacher: Path, num_layers: int) -> RunSpec:
    """Return the training of a student: only the teacher's vectors are learned."""
    distill = DistillSpec(
        teacher=str(teacher),
        student_layers=even_map(arm.layers, num_layers),
        student_neurons=arm.neurons,
        hard=0.0,
        soft=1.0,
    )
    return replace(run, distill=distill)


def agreements(folders: Mapping[str, Path], teacher: str, texts: Sequence[str]) -> dict[str, Agreement]:
    """Compare the vectors of every folder with those of the one that is called `teacher`."""
    wanted = unit(SentenceEncoder(folders[teacher]).encode(texts))
    return {
        name: agreement(wanted, unit(SentenceEncoder(folder).encode(texts)))
        for name, folder in folders.items()
        if name != teacher
    }


def agreement(teacher_ND: Vectors, student_ND: Vectors) -> Agreement:
    """Compare vectors of length 1 of the same texts."""
    theirs_NN, ours_NN = teacher_ND @ teacher_ND.T, student_ND @ student_ND.T
    above = np.triu_indices(len(theirs_NN), k=1)
    spearman = metrics.spearman(theirs_NN[above], ours_NN[above])
    near = [_nearest(scores_NN) for scores_NN in (theirs_NN, ours_NN)]
    shared = [len(set(a) & set(b)) / len(a) for a, b in zip(*near, strict=True)]
    return Agreement(
        cosine=float(np.mean(np.sum(teacher_ND * student_ND, axis=1))),
        spearman=spearman,
        neighbours=float(np.mean(shared)),
    )


def agreement_rows(found: Mapping[str, Agreement]) -> list[str]:
    """Return a Markdown table."""
    rows = [
        f"| {name} | {item.cosine:.4f} | {100 * item.spearman:.2f} | {percent(item.neighbours)} |"
        for name, item in found.items()
    ]
    head = "| agreement with the teacher | cosine | Spearman of all pairs | same ten neighbours |"
    return [head, "|---|---|---|---|", *rows]


def _nearest(scores_NN: Vectors) -> list[list[int]]:
    scores_NN = scores_NN.copy()
    np.fill_diagonal(scores_NN, -np.inf)
    found: list[list[int]] = np.argsort(-scores_NN, axis=1, kind="stable")[:, :NEIGHBOURS].tolist()
    return found


def _distinct(texts: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(texts))
