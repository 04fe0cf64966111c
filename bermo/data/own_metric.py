"""A metric of the user's own: a Python function that says how good answers are; larger is better.

    def cost(truth, answers): …                     one item a row, in the rows' order
    def cost(truth, answers, probabilities): …      of classes, labels and endings: a dict of each row's

    kind              truth, answers                               probabilities
    classification    a label                                      {label: probability}
    multi-label       a set of labels                              {label: probability}
    regression        a number
    tagging           a list of tags
    span              a list of right answers; one answer
    choice            the number of an ending                      {number: probability}

Its number is shown as it is, not in percent. The code is the user's, named on the command line or given in
Python. A run keeps the sum of its text and the numbers that it gave, and nothing that bermo could run again.
"""

import hashlib
import inspect
import math
import numbers
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bermo.data.rows import ChoiceRows, Rows, SpanRows, TaggedRows, TextRows
from bermo.errors import BermoError, nearest

KEYS = {
    "classification": "label",
    "multi-label": "labels",
    "regression": "value",
    "tagging": "tags",
    "span": "answer",
    "choice": "choice",
}
"""The kinds of task that a function can score, and where an answer of each stands in what `decode` gives."""
WITH_PROBABILITIES = ("classification", "multi-label", "choice")
PROBABILITIES = "probabilities"
EXPECTED = "def cost(truth, answers) or def cost(truth, answers, probabilities)"


@dataclass(frozen=True, kw_only=True)
class OwnMetric:
    """A function with the name that its score is shown by, and the sum of its text."""

    name: str
    digest: str
    shown: str
    """How errors name it, such as mine.py:cost."""
    function: Callable[..., Any] = field(repr=False)
    takes_probabilities: bool = False
    classes: Mapping[str, Any] = field(default_factory=dict, repr=False)
    """Labels as the user gave them, where they were no texts."""

    def value(self, kind: str, truth: Sequence[Any], answers: Sequence[Mapping[str, Any]]) -> float:
        """Return what the function says of answers in the form of `bermo.data.scoring.decode`."""
        given = [self._own(kind, answer[KEYS[kind]]) for answer in answers]
        more = {}
        if self.takes_probabilities:
            more[PROBABILITIES] = [
                {self.classes.get(name, name): value for name, value in answer[PROBABILITIES].items()}
                for answer in answers
            ]
        return self._number([self._own(kind, item) for item in truth], given, more)

    def _own(self, kind: str, item: Any) -> Any:
        """Return a label as the user gave it, and a set of several."""
        if kind == "multi-label":
            return {self.classes.get(name, name) for name in item}
        return self.classes.get(item, item) if kind == "classification" else item

    def _number(self, truth: list[Any], given: list[Any], more: Mapping[str, Any]) -> float:
        try:
            value = self.function(truth, given, **more)
        except Exception as error:
            raise BermoError(
                f"The metric {self.shown} raised {type(error).__name__}{_line(error, self.function)}:"
                f" {error}. It must give a number for any rows and answers."
            ) from error
        if not isinstance(value, numbers.Real) or not math.isfinite(value):
            raise BermoError(
                f"The metric {self.shown} gave {value!r:.60}, but a finite number was expected; larger is"
                " better."
            )
        return float(value)


def is_function(metric: str | None) -> bool:
    """Tell whether a metric names a function in a file, as mine.py:cost does."""
    return metric is not None and (":" in metric or metric.endswith(".py"))


def read_metric(typed: str) -> OwnMetric:
    """Run the file of FILE.py:FUNCTION, which the user typed, and return the function."""
    file, _, name = typed.rpartition(":") if ":" in typed else (typed, "", "")
    path = Path(file).expanduser()
    if not name.isidentifier() or path.suffix != ".py":
        raise BermoError(
            f'--metric "{typed}" names no function. Give a Python file and a function in it, such as'
            " mine.py:cost."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is no text in UTF-8"
        raise BermoError(f"The file {path} of --metric cannot be read: {reason}.") from None
    names = _run(path, text)
    if not callable(names.get(name)):
        known = [key for key, value in names.items() if inspect.isfunction(value)]
        raise BermoError(f'{path} has no function "{name}".{nearest(name, known)}')
    return own_metric(names[name], hashlib.sha256(text.encode()).hexdigest(), typed)


def own_metric(
    function: Callable[..., Any], digest: str | None = None, shown: str | None = None
) -> OwnMetric:
    """Return a function as a metric; one that takes other arguments is refused."""
    named = getattr(function, "__name__", "")
    name = named if named.isidentifier() else "own_metric"
    shown = shown or name
    return OwnMetric(
        name=name,
        digest=digest or _digest(function),
        shown=shown,
        function=function,
        takes_probabilities=_takes_probabilities(function, shown),
    )


def check_kind(metric: OwnMetric, kind: str) -> None:
    """Refuse a function for a kind of task that it cannot score."""
    if kind not in KEYS:
        raise BermoError(f"The metric of {kind} is not chosen. Leave --metric out.")
    if metric.takes_probabilities and kind not in WITH_PROBABILITIES:
        raise BermoError(
            f"The metric {metric.shown} takes probabilities, but {kind} has none. Give def"
            f" {metric.name}(truth, answers)."
        )


def check_answers(metric: OwnMetric, kind: str, rows: Rows, labels: Sequence[str]) -> None:
    """Ask the function before any training: for the right answers, and for one answer to everything."""
    check_kind(metric, kind)
    truth = truth_of(rows)
    for given in (truth, [truth[0]] * len(truth)):
        metric.value(kind, truth, [_sure(kind, item, labels) for item in given])


def truth_of(rows: Rows) -> list[Any]:
    """Return the right answer of each row, in the form of the answers; of questions all right ones."""
    match rows:
        case TextRows():
            return list(rows.labels or ())
        case TaggedRows():
            return [list(tags) for tags in rows.tags or ()]
        case SpanRows():
            return [[text for text, _ in golds] for golds in rows.answers or ()]
        case ChoiceRows():
            return [int(label) for label in rows.labels or ()]
    raise AssertionError("sentence encoders are not scored by a function")


def _sure(kind: str, item: Any, labels: Sequence[str]) -> dict[str, Any]:
    """Return an answer of which a model is sure."""
    names = item if kind == "multi-label" else (str(item),)
    answer = next(iter(item), "") if kind == "span" else item
    return {KEYS[kind]: answer, PROBABILITIES: {name: float(name in names) for name in labels}}


def _run(path: Path, text: str) -> dict[str, Any]:
    # Not imported: nothing is written beside the user's file, and what is run is the text that was summed.
    module = types.ModuleType(path.stem)
    module.__file__ = str(path)
    try:
        exec(compile(text, str(path), "exec"), module.__dict__)
    except (Exception, SystemExit) as error:
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) else ""
        raise BermoError(
            f"The file {path}{line} of --metric cannot be run: {type(error).__name__}: {error}."
        ) from error
    return module.__dict__


def _takes_probabilities(function: Callable[..., Any], shown: str) -> bool:
    try:
        known = inspect.signature(function)
        more = {PROBABILITIES: ()} if PROBABILITIES in known.parameters else {}
        known.bind((), (), **more)
    except (TypeError, ValueError) as error:
        raise BermoError(
            f"The metric {shown} cannot be called with truth and answers ({error}). Expected {EXPECTED}."
        ) from None
    return bool(more)


def _digest(function: Callable[..., Any]) -> str:
    """Return the sum of a function's source, or of its code where the source is not known."""
    try:
        text = inspect.getsource(function)
    except (OSError, TypeError):
        code = getattr(function, "__code__", None)
        parts = (code.co_code.hex(), code.co_names) if code is not None else ()
        text = repr((getattr(function, "__module__", ""), getattr(function, "__qualname__", ""), *parts))
    return hashlib.sha256(text.encode()).hexdigest()


def _line(error: BaseException, function: Callable[..., Any]) -> str:
    """Say in which line of the function's file an error was raised."""
    code, trace, line = getattr(function, "__code__", None), error.__traceback__, None
    while code is not None and trace is not None:
        if trace.tb_frame.f_code.co_filename == code.co_filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return "" if line is None else f" in line {line}"
