"""Evidence without files: a log, what processes recorded, what the run was. What is not named is empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chaos.audit.events import Event, Opened
from chaos.audit.evidence import Choose, Dataset, Entry, Evidence, Fence, History, HistoryFile, Log, Publish, Ref, Store
from chaos.audit.facts import Process, RunBegun

RUN = "run-1"
OWNER = Process(1, 10, "h")
NO_DATA = Dataset("data")
BEGUN = RunBegun(
    run=RUN, seed=7, config_digest="sha256:c", code_version="1", reproduce="killpoint run", ranks=2, microbatches=2,
    global_batch=8, steps=12, save_every=2, keep=2, training_digest="sha256:t", platform={}, twin=False, tolerance=0.0,
    faults=(),
)  # fmt: skip


def begun(**changes: Any) -> RunBegun:
    return replace(BEGUN, **changes)


def ref(step: int, attempt: int, microbatch: int = 0) -> Ref:
    """As the store names a checkpoint. Its digest follows from its name."""
    name = f"s{step:08d}{f'-m{microbatch:04d}' if microbatch else ''}-a{attempt:04d}"
    return Ref(name, f"sha256:{name}", step)


class Entries:
    """A log under construction: fence, choose, publish, and so on, in turn."""

    def __init__(self) -> None:
        self.made: list[Entry] = []
        self.attempt = -1

    def fence(self, owner: Process = OWNER) -> Entries:
        self.attempt += 1
        self.made.append(Fence(len(self.made), self.attempt, "sha256:t", owner))
        return self

    def choose(self, parent: Ref | None, *listed: Any) -> Entries:
        self.made.append(Choose(len(self.made), self.attempt, parent, listed))
        return self

    def publish(self, *steps: int, microbatch: int = 0) -> Entries:
        for step in steps:
            named = ref(step, self.attempt, microbatch)
            self.made.append(Publish(len(self.made), self.attempt, named.name, named.digest, named.step))
        return self


def said(what: Any, attempt: int | None = 0, file: str = "worker.jsonl", n: int = 0, t_ns: int = 0) -> Event[Any]:
    return Event(file, n, t_ns, n, attempt, what)


def history(events: Iterable[Event[Any]], opened: dict[str, Opened] | None = None) -> History:
    """opened: who wrote which file, of those of which that matters."""
    by_kind: dict[type, list[Event[Any]]] = {}
    for event in events:
        by_kind.setdefault(type(event.what), []).append(event)
    files = {
        name: HistoryFile(name, (opened or {}).get(name), tuple(e for e in events if e.file == name), (), False, True)
        for name in dict.fromkeys([*(event.file for event in events), *(opened or {})])
    }
    return History(files, (), (), by_kind)


def evidence(
    entries: Entries, *events: Event[Any], run: RunBegun | None = BEGUN, opened: dict[str, Opened] | None = None,
    **store: Any,
) -> Evidence:  # fmt: skip
    """store: manifests, files, present, or a log of its own."""
    whole = {"log": Log(tuple(entries.made), (), RUN), "manifests": {}, "files": {}, "present": frozenset(), **store}
    return Evidence(Store(**whole), history(events, opened), run, None, NO_DATA)
