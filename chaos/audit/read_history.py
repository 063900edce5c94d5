"""Reading shell: history files and receipts → typed events. A line that breaks the chain ends what is believed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.audit.decode import decode
from chaos.audit.events import KINDS, Closed, Event, Opened, Other
from chaos.audit.evidence import History, HistoryFile, Problem
from chaos.audit.facts import DataNamed, Receipt, RunBegun
from chaos.audit.formats import FormatError, canonical, read_regular, unseal


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


def _by_kind(files: Mapping[str, HistoryFile]) -> dict[type, tuple[Event[Any], ...]]:
    found: dict[type, list[Event[Any]]] = {}
    for file in files.values():
        for event in file.events:
            found.setdefault(type(event.what), []).append(event)
    return {kind: tuple(events) for kind, events in found.items()}


def _file(path: Path) -> HistoryFile:
    try:
        *lines, tail = read_regular(path).split(b"\n")
    except (OSError, FormatError) as error:
        unread = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else str(error)
        return HistoryFile(path.name, None, (), (), False, False, unread)
    events: list[Event[Any]] = []
    chains: list[str] = []
    named: list[DataNamed] = []
    role, chain = path.name.partition("-")[0], path.name
    problem: str | None = None
    for n, line in enumerate(lines):
        try:
            body, chain = _line(line, n, chain)
            chains.append(chain)
            events.append(_event(body, role, path.name, n))
            if role == "supervisor" and isinstance(body.get("dataset"), dict) and "plan" in body:
                named.append(decode(DataNamed, body))
        except FormatError as error:
            problem = f"line {n + 1}: {error}"
            break
    opened = events[0].what if events and isinstance(events[0].what, Opened) else None
    whole = problem is None and not tail
    closed = whole and bool(events) and isinstance(events[-1].what, Closed)
    if opened is None and problem is None:
        problem = "does not begin with who wrote it"
    return HistoryFile(path.name, opened, tuple(events), tuple(chains), bool(tail), closed, problem, tuple(named))


def _line(line: bytes, n: int, previous: str) -> tuple[dict[str, Any], str]:
    """Body and chain of line n. Raises FormatError unless it continues the chain."""
    try:
        body = json.loads(line)["body"]
        encoded = canonical(body)
        chain = hashlib.sha256(previous.encode() + encoded).hexdigest()
        expected = b'{"body":%b,"chain":"%b","n":%d}' % (encoded, chain.encode(), n)
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
