"""Reading shell: history files and receipts → typed events. A line that breaks the chain ends what is believed.

A long run's history is mostly steps. They are read line by line, by the pattern of those before them where that fits,
and kept in columns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from chaos.audit.decode import decode
from chaos.audit.events import KINDS, Closed, Event, Opened, Other, StepDone
from chaos.audit.evidence import Chains, History, HistoryFile, Problem
from chaos.audit.facts import DataNamed, Receipt, RunBegun
from chaos.audit.formats import FormatError, canonical, open_regular, read_regular, unseal
from chaos.audit.shapes import Shape
from chaos.audit.steps import Collector, Steps

_HEAD = b'{"body":'
_TAIL = b',"chain":"%b","n":%d}'
_CHAIN_CHARACTERS = 64
_SHAPES = 8  # of one file
_TIMED = 7  # place of train_s in a row of steps, after n


@dataclass(frozen=True)
class _Stamp:
    """What every event has."""

    t_ns: int
    clock: int
    attempt: int | None


def read_history(folder: Path) -> tuple[History, RunBegun | None, DataNamed | None]:
    """Every history and receipt below `folder`, the facts of the run, and which dataset and plan it used."""
    files: dict[str, HistoryFile] = {}
    named: list[DataNamed] = []
    for path in sorted(folder.glob("*.jsonl")):
        file = _file(path)
        files[file.name] = file
        named += file.data
    receipts, problems = read_receipts(folder / "receipts")
    history = History(files, receipts, problems, _by_kind(files))
    begun = [event.what for event in history.by_kind.get(RunBegun, ())]
    return history, begun[0] if len(begun) == 1 else None, named[0] if named else None


def _by_kind(files: Mapping[str, HistoryFile]) -> dict[type, Sequence[Event[Any]]]:
    found: dict[type, list[Event[Any]]] = {}
    for file in files.values():
        for event in file.events:
            found.setdefault(type(event.what), []).append(event)
    steps = Steps(block for file in files.values() for block in file.steps.blocks)
    return {**{kind: tuple(events) for kind, events in found.items()}, **({StepDone: steps} if steps else {})}


def _file(path: Path) -> HistoryFile:
    lines = _Lines(path.name)
    try:
        with open_regular(path) as file:
            torn = lines.read(file)
    except (OSError, FormatError) as error:
        unread = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        return HistoryFile(path.name, None, (), (), False, False, unread)
    events, problem = lines.events, lines.problem
    first = events[0].what if events and events[0].n == 0 else None
    opened = first if isinstance(first, Opened) else None
    closed = problem is None and not torn and isinstance(lines.last, Closed)
    if opened is None and problem is None:
        problem = "does not begin with who wrote it"
    return HistoryFile(
        path.name, opened, tuple(events), lines.chains, torn, closed, problem, tuple(lines.named),
        Steps(lines.steps.blocks()), lines.advances,
    )  # fmt: skip


class _Lines:
    """The lines of one file, taken one by one; what is kept of each step is a row of columns."""

    def __init__(self, name: str) -> None:
        self.events: list[Event[Any]] = []
        self.chains = Chains()
        self.named: list[DataNamed] = []
        self.steps = Collector(name)
        self.last: object = None
        self.advances = True
        self.problem: str | None = None
        self._name, self._role = name, name.partition("-")[0]
        self._clock: int | None = None
        self._shapes: list[tuple[Shape, tuple[str, ...], int, bool]] = []

    def read(self, file: BinaryIO) -> bool:
        """Whether the file ends in part of a line. Raises OSError."""
        tail, chain = b"", self._name
        for n, line in enumerate(file):
            if not line.endswith(b"\n"):
                tail = line
                break
            if self.problem is None:
                chain = self._take(line[:-1], n, chain)
        return bool(tail)

    def _take(self, line: bytes, n: int, chain: str) -> str:
        """Keeps what the line says, or why nothing is believed from here on; returns the chain after it."""
        try:
            after = self._known(line, n, chain)
            if after is None:
                body, after = _line(line, n, chain)
                self.chains.append(after)
                self._event(body, n)
            else:
                self.chains.append(after)
            return after
        except FormatError as error:
            self.problem = f"line {n + 1}: {error}"
            return chain

    def _known(self, line: bytes, n: int, previous: str) -> str | None:
        """The chain after a line of a known shape; None for any other, or where something is wrong with it."""
        end = len(line) - len(_TAIL % (b"", n)) - _CHAIN_CHARACTERS
        for shape, parts, rates, timed in self._shapes:
            values = shape.values(line, len(_HEAD), end)
            if values is None:
                continue
            chain = hashlib.sha256(previous.encode() + line[len(_HEAD) : end]).hexdigest()
            if not line.startswith(_HEAD) or line[end:] != _TAIL % (chain.encode(), n):
                return None
            if not timed:
                values = (*values[:_TIMED], b"0.0", *values[_TIMED:])
            self.steps.take(parts, rates, (n, *values))
            self._follow(int(values[1]), StepDone)
            return chain
        return None

    def _event(self, body: dict[str, Any], n: int) -> None:
        event = _event(body, self._role, self._name, n)
        if isinstance(event.what, StepDone):
            self.steps.add(event)
            self._learn(body, event)
        else:
            self.events.append(event)
        if self._role == "supervisor" and isinstance(body.get("dataset"), dict) and "plan" in body:
            self.named.append(decode(DataNamed, body))
        self._follow(event.clock, event.what)

    def _follow(self, clock: int, what: object) -> None:
        self.advances = self.advances and (self._clock is None or clock > self._clock)
        self._clock, self.last = clock, what

    def _learn(self, body: dict[str, Any], event: Event[StepDone]) -> None:
        """The shape of a step, unless there are too many for a look at all of them to pay."""
        if event.attempt is None or len(self._shapes) == _SHAPES:
            return
        done = event.what
        numbers = ("t_ns", "clock", "attempt", "rank", "step", "samples_seen")
        timed = body.get("train_s") is not None
        names = (*numbers, "skipped", *(["train_s"] if timed else []), "loss", "gradient_norm", "ids")
        fields = [(name,) for name in names]
        rates = [("lr", i) for i in range(len(done.lr))]
        shape = Shape(body, [*fields, *rates, *(("state", part) for part in done.state)], ("event",))
        self._shapes.append((shape, tuple(done.state), len(done.lr), timed))


def _line(line: bytes, n: int, previous: str) -> tuple[dict[str, Any], str]:
    """Body and chain of line n. Raises FormatError unless it continues the chain."""
    try:
        body = json.loads(line)["body"]
        encoded = canonical(body)
        chain = hashlib.sha256(previous.encode() + encoded).hexdigest()
        expected = _HEAD + encoded + _TAIL % (chain.encode(), n)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise FormatError(f"is no history line: {error!r:.100}") from error
    if line != expected or not isinstance(body, dict):
        raise FormatError("does not continue the chain: changed, moved, or lines before it were taken out")
    return body, chain


def _event(body: dict[str, Any], role: str, file: str, n: int) -> Event[Any]:
    name = str(body.get("event"))
    kind = KINDS.get(role, {}).get(name)
    what = Other(name) if kind is None else decode(kind, body, f"event {name}")
    line = decode(_Stamp, body, f"event {name}")
    return Event(file, n, line.t_ns, line.clock, line.attempt, what)


def read_receipts(folder: Path) -> tuple[tuple[Receipt, ...], tuple[Problem, ...]]:
    """Every receipt in `folder`, and what is there in place of one."""
    receipts: list[Receipt] = []
    problems: list[Problem] = []
    for path in sorted(folder.glob("*.json")):
        where = f"history/receipts/{path.name}"
        try:
            body, _ = unseal(read_regular(path))
            if body.get("format") != "killpoint.receipt/1" or body.get("fault") != path.stem:
                raise FormatError(f"is no receipt of fault {path.stem}")
            receipts.append(decode(Receipt, body, "receipt"))
        except (FormatError, OSError) as error:
            problems.append(Problem(where, str(error)))
    return tuple(receipts), tuple(problems)
