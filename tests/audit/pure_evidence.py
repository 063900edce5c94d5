"""Evidence made of single values, for tests of one function: no files, no run, and only what the test speaks of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from chaos.audit.events import Event, Opened, StepDone
from chaos.audit.evidence import (
    Dataset,
    Entry,
    Evidence,
    FileSeen,
    Fingerprints,
    History,
    HistoryFile,
    Log,
    Manifest,
    ManifestSeen,
    Store,
)
from chaos.audit.facts import Process, Receipt, RunBegun

RUN = "run-1"


def of(what: Any, *, file: str = "worker", attempt: int | None = 0, n: int = 0, t_ns: int = 0) -> Event[Any]:
    """An event; who does not care about the line leaves it out."""
    return Event(file, n, t_ns, n + 1, attempt, what)


def step(rank: int, number: int, *, ids: str = "", state: Mapping[str, str] | None = None, train_s: float = 0.0,
         **where: Any) -> Event[StepDone]:  # fmt: skip
    """The update after which `number` are done."""
    return of(StepDone(rank, number, "", (), "", state or {}, 0, ids, False, train_s), **where)


def process(name: str, pid: int, boot: str = "boot") -> HistoryFile:
    """A history of this name, of the process with this pid, of which the events are given to `evidence`."""
    opened = Opened(RUN, "worker", pid, 10 * pid, "host", boot)
    return HistoryFile(name, opened, (), (), torn=False, closed=True)


def receipt(kind: str, pid: int = 1, *, t_ns: int = 0, boot: str = "boot", point: str | None = None,
            **more: Any) -> Receipt:  # fmt: skip
    """Of fault f0, of a process that `process` makes."""
    target = Process(pid, 10 * pid, "host")
    return Receipt("f0", RUN, 0, "rank", 0, point, 1, kind, target, t_ns, boot, None, None, **more)


def begun(**changes: Any) -> RunBegun:
    """Two ranks, two microbatches of each, eight samples a step."""
    known: dict[str, Any] = {
        "run": RUN, "seed": 1, "config_digest": "", "code_version": "", "reproduce": "", "ranks": 2, "microbatches": 2,
        "global_batch": 8, "steps": 12, "save_every": 2, "keep": 2, "training_digest": "", "platform": {},
        "twin": False, "tolerance": 0.0, "faults": (),
    }  # fmt: skip
    return RunBegun(**{**known, **changes})


def manifest(name: str, number: int, **changes: Any) -> Manifest:
    """Of attempt 0 at this step."""
    known: dict[str, Any] = {
        "run": RUN, "name": name, "attempt": 0, "step": number, "world": 2, "cursor": 8 * number, "parent": None,
        "fingerprints": Fingerprints("", "", "", ""), "files": (), "tensors": {}, "parts": {}, "ranks": (),
    }  # fmt: skip
    return Manifest(**{**known, **changes})


def evidence(
    *,
    events: Iterable[Event[Any]] = (),
    processes: Iterable[HistoryFile] = (),
    receipts: Iterable[Receipt] = (),
    entries: Iterable[Entry] = (),
    manifests: Iterable[ManifestSeen] = (),
    files: Iterable[FileSeen] = (),
    present: Iterable[str] = (),
    begun: RunBegun | None = None,
) -> Evidence:
    by_kind: dict[type, list[Event[Any]]] = {}
    for event in events:
        by_kind.setdefault(type(event.what), []).append(event)
    by_name = {seen.path.removeprefix("manifests/").removesuffix(".json"): seen for seen in manifests}
    store = Store(Log(tuple(entries), run=RUN), by_name, {file.path: file for file in files}, frozenset(present))
    history = History({each.name: each for each in processes}, tuple(receipts), by_kind=by_kind)
    return Evidence(store, history, begun, None, Dataset("data"))
