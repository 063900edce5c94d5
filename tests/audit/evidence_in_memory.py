"""Evidence of a few lines, put together in memory: what a check looks at, and nothing else that a run would have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from chaos.audit.events import Event, Opened, StepDone
from chaos.audit.evidence import (
    Candidate,
    Choose,
    Dataset,
    Entry,
    Evidence,
    Fence,
    FileSeen,
    History,
    HistoryFile,
    Log,
    ManifestSeen,
    Publish,
    Ref,
    Segment,
    SegmentMeta,
    Store,
)
from chaos.audit.facts import Fault, Process, Receipt, RunBegun
from chaos.audit.steps import Steps

Line = tuple[int | None, Any]  # attempt, what


def step(rank: int, number: int, **others: Any) -> StepDone:
    """An update that was done; number: of updates after it."""
    plain: dict[str, Any] = {"loss": (1 / max(number, 1)).hex(), "lr": ("0x1p-3",), "gradient_norm": "0x1p+0",
                             "state": {}, "samples_seen": 8 * number, "ids": "", "skipped": False}  # fmt: skip
    return StepDone(rank, number, **{**plain, **others})


def recorded(role: str, pid: int, *lines: Line, boot: str = "b", opened: bool = True, closed: bool = False,
             times: Mapping[int, int] | None = None) -> HistoryFile:  # fmt: skip
    """Of a process that started at ten times its pid. Line n, from 1, is of the instant n, or `times[n]`."""
    name = f"{role}-h-{pid}-{10 * pid}.jsonl"
    who = Opened("run-1", role, pid, 10 * pid, "h", boot)
    at = times or {}
    whole = [Event(name, n, at.get(n, n), n, attempt, what) for n, (attempt, what) in enumerate([(None, who), *lines])]
    others = tuple(event for event in whole if not isinstance(event.what, StepDone))
    steps = Steps.of([event for event in whole if isinstance(event.what, StepDone)])
    return HistoryFile(name, who if opened else None, others, (), False, closed, steps=steps)


def log(*entries: tuple[Any, ...]) -> tuple[Entry, ...]:
    """("fence", attempt, pid of the supervisor), ("choose", attempt, parent or None), ("publish", attempt, step)."""
    found: list[Entry] = []
    for seq, (kind, attempt, *more) in enumerate(entries):
        if kind == "fence":
            found.append(Fence(seq, attempt, "sha256:t", Process(more[0], 10 * more[0], "h")))
        elif kind == "choose":
            parent = None if more[0] is None else checkpoint(*more[0])
            notes = () if parent is None else (Candidate(parent.name, parent.digest, parent.step, "chosen", ""),)
            found.append(Choose(seq, attempt, parent, notes))
        else:
            named = checkpoint(more[0], attempt)
            found.append(Publish(seq, attempt, named.name, named.digest, named.step))
    return tuple(found)


def checkpoint(number: int, attempt: int) -> Ref:
    """Of a step's boundary."""
    name = f"s{number:08d}-a{attempt:04d}"
    return Ref(name, f"sha256:{name}", number)


def receipt(kind: str, role: str, rank: int | None, attempt: int, pid: int, **others: Any) -> Receipt:
    plain: dict[str, Any] = {"fault": "f0", "run": "run-1", "point": "step.end", "hit": 1, "t_ns": 0, "boot": "b",
                             "gate": None, "history": None}  # fmt: skip
    own = {"kind": kind, "role": role, "rank": rank, "attempt": attempt, "target": Process(pid, 10 * pid, "h")}
    return Receipt(**{**plain, **own, **others})


def begun(**others: Any) -> RunBegun:
    faults: tuple[Fault, ...] = ()
    plain: dict[str, Any] = {
        "run": "run-1", "seed": 7, "config_digest": "sha256:c", "code_version": "1", "reproduce": "killpoint run",
        "ranks": 2, "microbatches": 2, "global_batch": 8, "steps": 12, "save_every": 2, "keep": 2,
        "training_digest": "sha256:t", "platform": {}, "twin": False, "tolerance": 0.0, "faults": faults,
    }  # fmt: skip
    return RunBegun(**{**plain, **others})


def segment(attempt: int, rank: int, save: int, steps: Sequence[int]) -> Segment:
    """Of the save after `save` updates; steps: of each row, from 0."""
    meta = SegmentMeta("run-1", attempt, save, rank, min(steps, default=0), save - 1)
    at, none = np.arange(len(steps)), np.zeros(len(steps), np.int64)
    return Segment(meta, at, at, none.astype(np.uint64), np.array(steps, np.int64), none.astype(np.int32))


def evidence(files: Iterable[HistoryFile] = (), entries: Sequence[Entry] = (), receipts: Sequence[Receipt] = (),
             run: RunBegun | None = None, manifests: Mapping[str, ManifestSeen] | None = None,
             seen: Mapping[str, FileSeen] | None = None) -> Evidence:  # fmt: skip
    """Of these histories, log entries, receipts, manifests and files of the store."""
    histories = {file.name: file for file in files}
    kinds: dict[type, list[Event[Any]]] = {}
    for file in histories.values():
        for event in file.events:
            kinds.setdefault(type(event.what), []).append(event)
    by_kind: dict[type, Sequence[Event[Any]]] = {kind: tuple(found) for kind, found in kinds.items()}
    done = Steps([block for file in histories.values() for block in file.steps.blocks])
    if done:
        by_kind[StepDone] = done
    store = Store(Log(tuple(entries), run="run-1"), manifests or {}, seen or {}, frozenset(seen or ()))
    history = History(histories, tuple(receipts), by_kind=by_kind)
    return Evidence(store, history, run, None, Dataset("data"))
