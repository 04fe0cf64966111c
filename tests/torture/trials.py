"""One trial: do something to a command or to its files, give the same command again, compare what is left."""

import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from signal import SIGINT
from typing import Literal

from bermo.interrupts import SIGNALLED, STOPPED
from tests.torture.client import Server
from tests.torture.compare import Tree, differences, read_tree, torn
from tests.torture.damage import damage_one
from tests.torture.faults import NONE, Fault
from tests.torture.kinds import Kind, Words
from tests.torture.once import Once
from tests.torture.server import Command, Ended

End = Literal["survived", "lost", "different", "hung", "tracebacks"]
SHORTEST_LIMIT, TIMES_NORMAL = 30.0, 20
DONE = "overwritten"
"""What a command says of a place that is taken; whether by its own whole output, the comparison tells."""
UNEXPECTED = ("Traceback (most recent call last)", "in a way that bermo did not expect", "Fatal Python error")
CARD = "README.md"


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a trial ended, by which faults it was hit, what was done, and why where it did not survive."""

    end: End
    hits: tuple[str, ...] = ()
    what: str = ""
    """What was done, and where it hit."""
    why: str = ""


class Broken(Exception):
    """A command failed that nothing was done to."""


class Failed(Exception):
    """Ends a trial: nothing later can make it good."""

    def __init__(self, end: End, why: str) -> None:
        super().__init__(why)
        self.outcome = Outcome(end=end, why=why)


@dataclass(frozen=True, kw_only=True)
class Normal:
    """The uninterrupted run of a kind: what it left, where, and what it took."""

    folder: Path
    tree: Tree
    code: int
    calls: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What a command printed, and what was in its folder afterwards."""

    printed: str
    tree: Tree


@dataclass(frozen=True)
class Known:
    """What undisturbed commands do, by kind and by reader."""

    normals: Once[str, Normal] = field(default_factory=Once)
    answers: Once[tuple[str, Words], Answer] = field(default_factory=Once)


@dataclass
class Place:
    """A server and a folder for the trials of one worker."""

    server: Server
    home: Path
    world: Path
    known: Known
    number: int = 0

    def new_folder(self, source: Path | None = None) -> Path:
        """Return the folder of the next trial: empty, or a copy."""
        shutil.rmtree(self.home / f"trial-{self.number}", ignore_errors=True)
        self.number += 1
        folder = self.home / f"trial-{self.number}"
        if source is None:
            folder.mkdir(parents=True)
        else:
            shutil.copytree(source, folder)
        return folder

    def run(self, words: Words, folder: Path, fault: Fault = NONE, normal: float = 0.0) -> Ended:
        """Run a command in a folder."""
        command = Command(
            words=tuple(word.format(world=self.world) for word in words),
            folder=str(folder),
            cache=str(folder / "cache"),
            log=str(self.home / "log"),
            limit=max(SHORTEST_LIMIT, TIMES_NORMAL * normal),
            fault=fault,
        )
        return self.server.run(command)

    def printed(self) -> str:
        """What the last command printed, but for its speed."""
        text = (self.home / "log.out").read_text(encoding="utf-8", errors="replace")
        return re.sub(r"[\d,.]+ rows a second|tokens/s +[\d,.]+ +\d+ s in all", "speed", text)

    def said(self) -> str:
        """What the last command said on stderr, without the place of its inputs."""
        text = (self.home / "log.err").read_text(encoding="utf-8", errors="replace")
        return text.replace(str(self.world), "{world}")


def run_normally(place: Place, kind: Kind) -> Normal:
    """The run of a kind without any fault; made once."""
    return place.known.normals.get(kind.name, lambda: _run_normally(place, kind))


def _run_normally(place: Place, kind: Kind) -> Normal:
    folder = place.new_folder()
    ended = place.run(kind.words, folder, normal=SHORTEST_LIMIT)
    if ended.code not in (0, 3) or ended.is_hung:
        raise Broken(f"{kind.name} ended with {ended.code}:\n{place.said()}")
    kept = place.home / f"normal-{kind.name.replace(' ', '-')}"
    shutil.rmtree(kept, ignore_errors=True)
    folder.rename(kept)
    return Normal(
        folder=kept,
        tree=read_tree(kept, kind.measured),
        code=ended.code,
        calls=ended.counted,
        seconds=ended.seconds,
    )


def interrupt(place: Place, kind: Kind, normal: Normal, faults: Sequence[Fault]) -> Outcome:
    """Hit the command by one fault after the other, then let it end, and compare every byte."""
    folder, outcome = place.new_folder(), Outcome(end="survived")
    hits, done = [], []
    try:
        for fault in faults:
            ended = place.run(kind.words, folder, fault, normal.seconds)
            done.append(fault.described(ended.hit))
            if _is_hit(ended, fault):
                hits.append(fault.name)
            judge(ended, place.said(), fault, normal.code)
            if fault.error and (rests := torn(folder)):
                raise Failed("different", "; ".join(rests))
        _finish(place, kind, normal, folder)
    except Failed as failed:
        outcome = failed.outcome
    return replace(outcome, hits=tuple(hits), what="; ".join(done))


def _is_hit(ended: Ended, fault: Fault) -> bool:
    """Tell whether the command was still at work when the fault came."""
    return ended.seconds >= fault.seconds[0] if fault.seconds else ended.counted >= fault.at


def damage_stopped(
    place: Place, kind: Kind, normal: Normal, fault: Fault, how: str, random: Random
) -> Outcome:
    """Damage a file of a stopped run; the command must name it, or end with the same bytes."""
    folder = place.new_folder()
    stopped = place.run(kind.words, folder, fault, normal.seconds)
    damaged = damage_one(folder, how, random)
    if damaged is None:
        return Outcome(end="survived")
    path, what = damaged
    ended = place.run(kind.words, folder, normal=normal.seconds)
    outcome = Outcome(end="survived")
    try:
        judge(ended, place.said(), usual=normal.code)
        if ended.code == normal.code:
            _compare(normal.tree, read_tree(folder, kind.measured), folder, path)
        elif DONE not in place.said():
            _must_name(path, folder, place.said())
    except Failed as failed:
        outcome = failed.outcome
    return replace(outcome, hits=(how,), what=f"{fault.described(stopped.hit)}; {what}")


def damage_finished(
    place: Place, kind: Kind, normal: Normal, reader: Words, how: str, random: Random
) -> Outcome:
    """Damage a file of a finished run; whatever reads it must name it, or answer as before."""
    expected = _answer(place, kind, normal, reader)
    folder = place.new_folder(normal.folder)
    damaged = damage_one(folder, how, random)
    assert damaged is not None
    path, what = damaged
    ended = place.run(reader, folder, normal=normal.seconds)
    outcome = Outcome(end="survived")
    try:
        judge(ended, place.said(), usual=normal.code)
        if ended.code not in (0, normal.code):
            _must_name(path, folder, place.said())
        else:
            _compare(expected.tree, read_tree(folder, kind.measured), folder, path)
            if place.printed() != expected.printed:
                raise Failed("different", "it printed something else")
    except Failed as failed:
        outcome = failed.outcome
    return replace(outcome, hits=(how,), what=f"{what}; bermo {' '.join(reader)}")


def _answer(place: Place, kind: Kind, normal: Normal, reader: Words) -> Answer:
    """What a reader does with the undamaged folder; asked once."""

    def ask() -> Answer:
        folder = place.new_folder(normal.folder)
        ended = place.run(reader, folder, normal=SHORTEST_LIMIT)
        if ended.code != 0:
            raise Broken(f"{kind.name}, {' '.join(reader)}: {ended.code}\n{place.said()}")
        return Answer(printed=place.printed(), tree=read_tree(folder, kind.measured))

    return place.known.answers.get((kind.name, reader), ask)


def _finish(place: Place, kind: Kind, normal: Normal, folder: Path) -> None:
    ended = place.run(kind.words, folder, normal=normal.seconds)
    said = place.said()
    judge(ended, said, usual=normal.code)
    if ended.code != normal.code and DONE not in said:
        raise Failed("lost", f"ended with {ended.code}: {_last(said)}")
    rests = differences(normal.tree, read_tree(folder, kind.measured))
    if rests:
        raise Failed("different", "; ".join(rests))


def judge(ended: Ended, said: str, fault: Fault = NONE, usual: int = 0) -> None:
    """Refuse an end that no user should see: no end, a traceback, a crash, or a failure without a word.

    `usual` is the code of the undisturbed command: a tiny training that diverges says so by its code.
    """
    if ended.is_hung:
        raise Failed("hung", said[-2000:])
    if any(text in said for text in UNEXPECTED):
        raise Failed("tracebacks", said[-2000:])
    # Signals of schedulers are taken as Ctrl-C.
    ends = (-fault.signal, SIGNALLED + fault.signal, SIGNALLED + SIGINT)
    allowed = (0, usual, STOPPED, *ends) if fault.signal else (0, usual)
    if ended.code in allowed:
        return
    if ended.code < 0:
        raise Failed("tracebacks", f"it crashed by signal {-ended.code}: {_last(said)}")
    if ended.code and not _last(said).startswith("bermo: "):
        raise Failed("tracebacks", f"it failed without a sentence: {said[-500:]}")


def _must_name(path: Path, folder: Path, said: str) -> None:
    """Refuse a sentence that names neither the damaged file nor the folder that it is in."""
    inside = path.relative_to(folder)
    sentence = "".join(_last(said).split())
    if inside.name not in sentence and str(inside.parent) not in sentence:
        raise Failed("tracebacks", f"the sentence does not name it: {_last(said)}")


def _compare(expected: Tree, got: Tree, folder: Path, damaged: Path) -> None:
    """Refuse differences, but for the damaged file itself; a card, which anybody may edit, has copies."""
    own = CARD if damaged.name == CARD else damaged.relative_to(folder).as_posix()
    rests = [text for text in differences(expected, got) if not f"/{text}".partition(f"/{own} ")[1]]
    if rests:
        raise Failed("different", "; ".join(rests))


def _last(said: str) -> str:
    """The last thing said: the sentence of a failure may be wrapped over lines."""
    at = said.rfind("bermo: ")
    return said[at:].strip() if at >= 0 else (said.strip().splitlines() or [""])[-1]
