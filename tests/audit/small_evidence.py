"""Evidence in memory, without a run on disk: what a pure function of the auditor looks at, and nothing else.

Whatever a test does not name has the least that it may have. Names of checkpoints and of their files are the real ones.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from chaos.audit.events import Event, Opened, StepDone
from chaos.audit.evidence import (
    Choose,
    Dataset,
    Entry,
    Evidence,
    Fence,
    Fingerprints,
    History,
    HistoryFile,
    Log,
    Manifest,
    ManifestSeen,
    Publish,
    RankNamed,
    Ref,
    Store,
)
from chaos.audit.facts import Head, PlanSpec, Process, Receipt, RunBegun
from chaos.audit.formats import checkpoint_name
from chaos.audit.steps import Steps

PRINTS = Fingerprints("sha256:data", "sha256:plan", "sha256:training", "code")


# -- the log


def fence(seq: int, attempt: int, pid: int = 1, config: str = "sha256:training") -> Fence:
    return Fence(seq, attempt, config, Process(pid, pid * 10, "h"))


def published(seq: int, attempt: int, step: int, microbatch: int = 0) -> Publish:
    return Publish(seq, attempt, checkpoint_name(step, attempt, microbatch), f"sha256:{seq}", step)


def chose(seq: int, attempt: int, publish: Publish | None, candidates: tuple[Any, ...] = ()) -> Choose:
    parent = None if publish is None else Ref(publish.name, publish.digest, publish.step)
    return Choose(seq, attempt, parent, candidates)


def manifest(publish: Publish, *parts: Mapping[str, str], **changes: Any) -> ManifestSeen:
    """The manifest that was published. parts: of each rank."""
    ranks = tuple(RankNamed(rank, own, {}, Head("f", 0, "c")) for rank, own in enumerate(parts))
    fields: dict[str, Any] = {
        "run": "r", "name": publish.name, "attempt": publish.attempt, "step": publish.step, "world": len(ranks),
        "cursor": 0, "parent": None, "fingerprints": PRINTS, "files": (), "tensors": {}, "parts": {}, "ranks": ranks,
    }  # fmt: skip
    return ManifestSeen(f"manifests/{publish.name}.json", Manifest(**{**fields, **changes}), publish.digest)


# -- the history

Line = tuple[Any, int | None, int]  # what, attempt, t_ns


def history(
    name: str, *lines: Line, boot: str | None = "b", pid: int = 1, closed: bool = False, **more: Any
) -> HistoryFile:
    """One process's file: `opened`, unless boot is None, and these lines, in order."""
    opened = None if boot is None else Opened("r", name.partition("-")[0], pid, pid * 10, "h", boot)
    events = tuple(Event(name, n, t_ns, n, attempt, what) for n, (what, attempt, t_ns) in enumerate(lines, 1))
    others = tuple(event for event in events if not isinstance(event.what, StepDone))
    done = Steps.of([event for event in events if isinstance(event.what, StepDone)])
    return HistoryFile(name, opened, others, [], False, closed, steps=done, **more)


def step(rank: int, number: int, lr: tuple[str, ...] = ("0x1p-3",)) -> StepDone:
    return StepDone(rank, number, "0x1p+0", lr, "0x1p+0", {}, 0, "xxh3-128:0", False)


def receipt(pid: int = 1, t_ns: int = 0, boot: str = "b", **changes: Any) -> Receipt:
    """Of a rank that was killed in attempt 0, if nothing else is said."""
    fields: dict[str, Any] = {
        "fault": "f0", "run": "r", "attempt": 0, "role": "rank", "rank": 0, "point": "step.end", "hit": 1,
        "kind": "sigkill", "target": Process(pid, pid * 10, "h"), "t_ns": t_ns, "boot": boot, "gate": None,
        "history": None,
    }  # fmt: skip
    return Receipt(**{**fields, **changes})


# -- all of it


def begun(**changes: Any) -> RunBegun:
    fields: dict[str, Any] = {
        "run": "r", "seed": 7, "config_digest": "sha256:config", "code_version": "1", "reproduce": "killpoint run",
        "ranks": 3, "microbatches": 2, "global_batch": 8, "steps": 12, "save_every": 2, "keep": 2,
        "training_digest": "sha256:training", "platform": {}, "twin": False, "tolerance": 0.0, "faults": (),
        "experiment_digest": "sha256:experiment",
    }  # fmt: skip
    return RunBegun(**{**fields, **changes})


def evidence(
    entries: Sequence[Entry] = (),
    files: Sequence[HistoryFile] = (),
    receipts: Sequence[Receipt] = (),
    manifests: Sequence[ManifestSeen] = (),
    begun: RunBegun | None = None,
    plan: PlanSpec | None = None,
    **more: Any,
) -> Evidence:
    by_kind: dict[type, list[Event[Any]]] = {}
    for file in files:
        for event in sorted([*file.events, *file.steps], key=lambda event: event.n):
            by_kind.setdefault(type(event.what), []).append(event)
    seen = {found.manifest.name: found for found in manifests if found.manifest is not None}
    store = Store(Log(tuple(entries), run="r"), seen, {}, frozenset())
    told = History({file.name: file for file in files}, tuple(receipts), by_kind=by_kind)
    return Evidence(store, told, begun, plan, Dataset("data"), **more)
