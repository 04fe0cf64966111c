"""An analysis: the chosen parts over one or several models, each kept as soon as it is done.

    look/ = analyse.json (what was asked), parts/MODEL.PART.json, figures.json (for `bermo report`)

A stopped analysis goes on with the first part that is not there. A part's file is named by what decides its
numbers: model, texts and options; another model under the same name is measured anew.
"""

import hashlib
import json
import math
import time
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel

from bermo.analyse import layer_figures
from bermo.analyse.contexts import check_words
from bermo.analyse.parts import PARTS, Measurement, Need
from bermo.analyse.reading import check_texts
from bermo.analyse.sentence import check_heads, check_sentence
from bermo.analyse.subject import Request, Subject
from bermo.data.pairs import read_pairs
from bermo.data.senses import choose_test, find_senses
from bermo.encoders.attention import check_attention
from bermo.encoders.sites import prunable_sites
from bermo.errors import BermoError
from bermo.figures.data import Findings, Section, paragraphs, write_findings
from bermo.figures.scale import on_one_scale
from bermo.files import DAMAGED, check_place, read_sealed, reading, write_sealed
from bermo.machine import peak_memory_bytes
from bermo.progress import Display
from bermo.runs.folder import is_empty, locked
from bermo.runs.kept_options import differences
from bermo.runs.model_files import warn_diverged

MARK = "analyse.json"
FORMAT = 1
FLAGS = {item.name: f"--{item.name.replace('_', '-')}" for item in fields(Request)} | {
    "models": "the models",
    "test": "--sense-test",
    "sentences": "--sentence",
    "max_trees": "--max-texts",
}
FREE = ("measures", "device")
"""Fields of a request that may change in the same folder: they do not change a part's numbers."""
OWN: Mapping[str, tuple[str, ...]] = {
    "sentence": ("sentences", "heads", "corpus", "words", "layer"),
    "map": ("map",),
    "relations": ("trees", "max_trees"),
    "restored": ("base",),
    "moved": ("base",),
}
"""Fields that decide the numbers of one part alone."""
HINT = (
    "Word senses need --senses; relations --trees; parts with a score need --data; fine-tuning's effect"
    " needs a run, or the encoder before it with --base."
)
CHECKS: dict[Need, Callable[[PreTrainedModel], object]] = {
    "attention": check_attention,
    "matrices": prunable_sites,
    "word vectors": lambda encoder: encoder.get_input_embeddings(),
}
"""What refuses an encoder that lacks what a measure needs."""


def analyse(request: Request, out: Path, display: Display) -> Findings:
    """Measure all that was asked, write figures.json, and return the measured facts."""
    _check_free(out, request)
    started = time.monotonic()
    subjects = _subjects(request)
    for subject in subjects:
        _check_subject(subject)
        warn_diverged(subject.source, display.tell)
    if not any(_asked(subject) for subject in subjects):
        raise BermoError(f"Nothing of this can be measured. {HINT}")
    with locked(out):
        write_sealed(out / MARK, _identity(request))
        facts, reasons = _measure_all(subjects, request, out, display)
        findings = _findings(request, subjects, facts, reasons, time.monotonic() - started)
        write_findings(out / "figures.json", findings)
    return findings


def _subjects(request: Request) -> list[Subject]:
    names = unique_names(request.models)
    first = Subject(request.models[0], names[0], request, None)
    rest = [
        Subject(source, name, request, first)
        for source, name in zip(request.models[1:], names[1:], strict=True)
    ]
    return [first, *rest]


def unique_names(models: Sequence[str]) -> list[str]:
    """Return the shortest ends of the paths that tell the models apart."""
    parts = [Path(model).parts for model in models]
    for depth in range(1, max(map(len, parts)) + 1):
        names = ["/".join(part[-depth:]) for part in parts]
        if len(set(names)) == len(names):
            return names
    raise BermoError("The same model was given twice. Give each once.")


def _check_subject(subject: Subject) -> None:
    """Load what the model needs once, so that a mistake is reported before any work."""
    request = subject.request
    if request.texts:
        check_texts(subject.encoder, request.texts, subject.longest, request.max_unknown)
    if request.senses is not None and "senses" in request.measures:
        choose_test(find_senses(Path(request.senses)), request.test)
    if request.trees is not None and "relations" in request.measures:
        _ = subject.parsed
    if request.pairs is not None and "knowledge" in request.measures:
        read_pairs(Path(request.pairs))
    if request.data is not None and {"heads", "layers"} & set(request.measures):
        _ = subject.labelled
    if "tuned" in request.measures and request.base is not None:
        subject.load_base()
    if request.sentences and "sentence" in request.measures:
        _check_sentences(subject)


def _check_sentences(subject: Subject) -> None:
    request, encoder = subject.request, subject.encoder
    for text in request.sentences:
        check_sentence(subject.answerer, encoder, text)
    if request.heads:
        check_attention(encoder.backbone)
        check_heads(encoder, request.heads)
    if request.layer is not None and request.layer >= encoder.num_layers:
        raise BermoError(
            f"There is no layer {request.layer}: {encoder.name} has the layers 0 to {encoder.num_layers - 1}."
        )
    check_words(encoder, request.sentences, request.words, subject.longest)


def _measure_all(
    subjects: Sequence[Subject], request: Request, out: Path, display: Display
) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """Return the facts by part and model, and why some are missing.

    What was measured in this folder before stays in it, also where fewer measures are asked for now.
    """
    facts: dict[str, dict[str, Any]] = {}
    reasons: dict[str, None] = {}
    for subject in subjects:
        for name, part in PARTS.items():
            if not _is_wanted(part, subject):
                continue
            if part.group not in request.measures:
                known = _read_part(_part_file(out, subject, name), _key(name, subject), part.kind)
                if known is not None:
                    facts.setdefault(name, {})[subject.name] = known
                continue
            reason = _cannot(part, subject)
            if reason is not None:
                reasons[reason] = None
                continue
            facts.setdefault(name, {})[subject.name] = _measure(name, part, subject, out, display)
        if subject is not subjects[0]:
            subject.let_go()
    if not facts:
        raise BermoError(" ".join(reasons) or f"Nothing of this can be measured. {HINT}")
    return facts, list(reasons)


def _asked(subject: Subject) -> list[str]:
    """Name the parts that this model is to be measured by."""
    wanted = subject.request.measures
    return [name for name, part in PARTS.items() if part.group in wanted and _is_wanted(part, subject)]


def _is_wanted(part: Measurement, subject: Subject) -> bool:
    request = subject.request
    given = {
        "texts": bool(request.texts),
        "labels": request.data is not None,
        "senses": request.senses is not None,
        "two": subject.first is not None,
        "sentences": bool(request.sentences),
        "trees": request.trees is not None,
        "map": bool(request.map) and bool(request.texts or request.senses),
        "base": "tuned" in request.measures and subject.base is not None,
    }
    return all(given.get(need, True) for need in part.needs)


def _cannot(part: Measurement, subject: Subject) -> str | None:
    try:
        for need, check in CHECKS.items():
            if need in part.needs:
                check(subject.encoder.backbone)
        if "base" in part.needs:
            subject.load_base()
    except BermoError as error:
        return f"{subject.name}: {error}"
    return None


def _measure(name: str, part: Measurement, subject: Subject, out: Path, display: Display) -> Any:
    """Return a part's facts, from its file if it is there and of the same content."""
    path, key = _part_file(out, subject, name), _key(name, subject)
    known = _read_part(path, key, part.kind)
    if known is not None:
        return known
    done, total = 0, part.total(subject)
    display.start(f"{subject.name}: {name}", total, 0)

    def advance(count: int) -> None:
        nonlocal done
        done += count
        display.step(done, None)

    try:
        facts = part.measure(subject, advance)
        display.step(total, None)
    finally:
        display.close()
    write_sealed(path, {"key": key, "facts": asdict(facts)})
    return facts


def _part_file(out: Path, subject: Subject, name: str) -> Path:
    return out / "parts" / f"{subject.name.replace('/', '-')}.{name}.json"


def _key(name: str, subject: Subject) -> str:
    """Name all that decides a part's numbers."""
    values = _identity(subject.request)
    models = [subject.encoder.fingerprint]
    if "two" in PARTS[name].needs and subject.first is not None:
        models.append(subject.first.encoder.fingerprint)
    others = {field for own in OWN.values() for field in own} - set(OWN.get(name, ())) | {"models"}
    if "base" in PARTS[name].needs:
        models.append(str(subject.base))
    text = json.dumps([FORMAT, name, models, {k: v for k, v in values.items() if k not in others}])
    return hashlib.sha256(text.encode()).hexdigest()


def _identity(request: Request) -> dict[str, Any]:
    digest = hashlib.sha256("\n".join(request.texts).encode()).hexdigest()
    values = asdict(request) | {"texts": digest, "models": list(request.models)}
    corpus = hashlib.sha256("\n".join(request.corpus).encode()).hexdigest() if request.corpus else ()
    values |= {"corpus": corpus}
    # What was not asked for is not named, so that a folder is the same with and without it.
    unused = {name for own in OWN.values() for name in own if not values[name] and values[name] != 0}
    return {name: value for name, value in values.items() if name not in {*FREE, *unused}}


def _check_free(out: Path, request: Request) -> None:
    """Refuse a folder that holds something else, before any work starts."""
    if out.is_file():
        raise BermoError(f"{out} is a file. Give a folder that is new or empty with --out.")
    check_place(out)
    if not out.exists() or is_empty(out):
        return
    try:
        old = read_sealed(out / MARK)
    except (OSError, *DAMAGED):
        raise BermoError(
            f"{out} is not empty and holds no analysis; nothing there is overwritten."
            " Give another folder with --out."
        ) from None
    usual = {f.name: f.default for f in fields(Request) if f.default is not MISSING and f.name not in FREE}
    usual, new = json.loads(json.dumps([usual, usual | _identity(request)]))
    with reading(out / MARK, "Give another folder with --out."):
        changed = differences(old, new, usual, FLAGS)
    if changed:
        raise BermoError(
            f"{out} holds another analysis; nothing there is overwritten. What differs: {'; '.join(changed)}."
            " Give another folder with --out, or the command of that analysis."
        )


def _read_part(path: Path, key: str, kind: type) -> Any:
    try:
        content = read_sealed(path)
        return restore(kind, content["facts"]) if content["key"] == key else None
    except (OSError, *DAMAGED):
        # Not there, or not whole: it is measured again.
        return None


def restore(hint: Any, value: Any) -> Any:
    """Turn JSON's lists and objects back into tuples and the dataclass that they were."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if value is None:
        return None
    if is_dataclass(hint) and isinstance(hint, type):
        hints = typing.get_type_hints(hint)
        return hint(**{f.name: restore(hints[f.name], value[f.name]) for f in fields(hint)})
    if origin in (typing.Union, types.UnionType):
        return restore(next(part for part in inner if part is not type(None)), value)
    if isinstance(value, list):
        repeated = len(inner) == 2 and inner[1] is Ellipsis
        hints_ = [inner[0]] * len(value) if repeated else list(inner)
        return tuple(restore(part, item) for part, item in zip(hints_, value, strict=True))
    if isinstance(value, dict) and inner:
        return {key: restore(inner[1], item) for key, item in value.items()}
    return value


def _findings(
    request: Request,
    subjects: Sequence[Subject],
    facts: Mapping[str, Mapping[str, Any]],
    reasons: Sequence[str],
    seconds: float,
) -> Findings:
    sections = [PARTS[name].draw(item) for name, item in facts.items()]
    if "layers" in facts:
        known = (facts.get(name, {}) for name in ("layers", "kept", "cut", "between"))
        sections.append(layer_figures.alive_section(*known))
    if reasons:
        sections.append(Section(title="Not measured", text=paragraphs(reasons), figures=()))
    order: Callable[[Section], bool] = lambda section: not section.figures  # noqa: E731
    return Findings(
        title="Analysis of " + ", ".join(subject.name for subject in subjects),
        facts={
            **_amounts(request),
            "seconds": f"{seconds:.0f}",
            "peak memory": f"{peak_mib():.0f} MiB",
        },
        sections=tuple(
            replace(section, figures=on_one_scale(section.figures)) for section in sorted(sections, key=order)
        ),
    )


def _amounts(request: Request) -> dict[str, str]:
    """Say how much was read."""
    texts = f"{len(request.texts)}, cut at {request.max_length} tokens"
    known = {"sentences": str(len(request.sentences)), "corpus": f"{len(request.corpus)} texts"}
    counts = {"sentences": len(request.sentences), "corpus": len(request.corpus)}
    own = {name: words for name, words in known.items() if counts[name]}
    return {"texts": texts} | own if request.texts or not own else own


def peak_mib() -> float:
    """Return the most memory this process has held."""
    return math.ceil(peak_memory_bytes() / 2**20)
