"""Evidence in memory, without a run on disk: what a function of the auditor looks at, and nothing else.

What is not named is empty, or as a run has it in which all is right: run-1, of host h, with processes that started at
ten times their pids. Names of checkpoints and of their files are the real ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from chaos.audit.events import Event, Opened, StepDone
from chaos.audit.evidence import (
    Candidate,
    Choose,
    Dataset,
    Entry,
    Evidence,
    Fence,
    FileNamed,
    FileSeen,
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
from chaos.audit.formats import PARTIAL_PARTS, RANK_PARTS, SHARED_PARTS
from chaos.audit.steps import Steps

RUN = "run-1"
PRINTS = Fingerprints("sha256:data", "sha256:plan", "sha256:t", "code")
BEGUN = RunBegun(
    run=RUN, seed=7, config_digest="sha256:c", code_version="1", reproduce="killpoint run", ranks=2, microbatches=2,
    global_batch=8, steps=12, save_every=2, keep=2, training_digest="sha256:t", platform={}, twin=False, tolerance=0.0,
    faults=(),
)  # fmt: skip


def begun(**changes: Any) -> RunBegun:
    return replace(BEGUN, **changes)


# -- the log


def checkpoint(step: int, attempt: int, microbatch: int = 0) -> Ref:
    """As the store names a checkpoint. Its digest follows from its name."""
    name = f"s{step:08d}{f'-m{microbatch:04d}' if microbatch else ''}-a{attempt:04d}"
    return Ref(name, f"sha256:{name}", step)


def note(of: Ref, status: str = "chosen", reason: str = "") -> Candidate:
    """As a choose entry lists a checkpoint."""
    return Candidate(of.name, of.digest, of.step, status, reason)


def fence(seq: int, attempt: int, pid: int = 1, config: str = "sha256:t") -> Fence:
    """By the supervisor with this pid."""
    return Fence(seq, attempt, config, Process(pid, 10 * pid, "h"))


def chose(seq: int, attempt: int, parent: Ref | Publish | None, *listed: Candidate) -> Choose:
    return Choose(seq, attempt, parent.ref if isinstance(parent, Publish) else parent, listed)


def published(seq: int, attempt: int, step: int, microbatch: int = 0) -> Publish:
    named = checkpoint(step, attempt, microbatch)
    return Publish(seq, attempt, named.name, named.digest, named.step)


class Entries:
    """A log under construction: fence, choose, publish, and so on, in turn."""

    def __init__(self) -> None:
        self.made: list[Entry] = []
        self.attempt = -1

    def fence(self, pid: int = 1) -> Entries:
        self.attempt += 1
        self.made.append(fence(len(self.made), self.attempt, pid))
        return self

    def choose(self, parent: Ref | None, *listed: Candidate) -> Entries:
        self.made.append(chose(len(self.made), self.attempt, parent, *listed))
        return self

    def take(self, parent: Ref) -> Entries:
        """Chooses this one, and lists nothing else."""
        return self.choose(parent, note(parent))

    def publish(self, *steps: int, microbatch: int = 0) -> Entries:
        for step in steps:
            self.made.append(published(len(self.made), self.attempt, step, microbatch))
        return self


# -- the store


def shard(of: Ref, rank: int = 0) -> str:
    return f"shards/{of.name}-r{rank:04d}.safetensors"


def segment(of: Ref, rank: int = 0) -> str:
    return f"ledger/{of.name}-r{rank:04d}.arrow"


def manifest(of: Ref | Publish, attempt: int = 0, world: int = 2, **changes: Any) -> Manifest:
    """Of a checkpoint that has no files, no parts and no tensors but those that are named."""
    cursor = of.step * BEGUN.global_batch
    made = Manifest(RUN, of.name, attempt, of.step, world, cursor, None, PRINTS, (), {}, {}, (), of.moment[1])
    return replace(made, **changes)


def complete(of: Ref, attempt: int = 0, world: int = 1, **changes: Any) -> Manifest:
    """The manifest of a checkpoint whose parts and files all have the digest `d`."""
    parts = RANK_PARTS | PARTIAL_PARTS if of.moment[1] else RANK_PARTS
    ranks = tuple(
        RankNamed(rank, dict.fromkeys(sorted(parts), "d"), {}, Head("worker", 0, "c")) for rank in range(world)
    )
    named = tuple(
        FileNamed(path, kind, rank, 1, "d") for rank in range(world)
        for kind, path in (("shard", shard(of, rank)), ("ledger", segment(of, rank)))
    )  # fmt: skip
    shared = dict.fromkeys(sorted(SHARED_PARTS), "d")
    return manifest(of, attempt, world, **{"files": named, "parts": shared, "ranks": ranks, **changes})


def manifest_seen(of: Publish, *parts: Mapping[str, str], **changes: Any) -> ManifestSeen:
    """The manifest that was published. parts: of each rank."""
    ranks = tuple(RankNamed(rank, own, {}, Head("worker", 0, "c")) for rank, own in enumerate(parts))
    made = manifest(of, of.attempt, len(ranks), **{"ranks": ranks, **changes})
    return ManifestSeen(f"manifests/{of.name}.json", made, of.digest)


def stored(*manifests: Manifest, lost: Iterable[str] = (), unreadable: Iterable[str] = ()) -> dict[str, Any]:
    """What of a store holds these checkpoints, whole but for files that are lost or cannot be read."""
    found, files = {}, {}
    for each in manifests:
        path = f"manifests/{each.name}.json"
        if path not in lost:
            found[each.name] = ManifestSeen(path, each, f"sha256:{each.name}")
        for named in each.files:
            cannot = named.path in unreadable
            why = "cannot be read" if cannot else None
            if named.path not in lost:
                files[named.path] = FileSeen(named.path, 1, named.digest, problem=why, unreadable=cannot)
    return {"manifests": found, "seen": files}


# -- the history

Line = tuple[Any, ...]  # attempt, what, and the instant where it is not the number of the line


def step(rank: int, number: int, **others: Any) -> StepDone:
    """An update that was done; number: of updates after it."""
    plain: dict[str, Any] = {"loss": (1 / max(number, 1)).hex(), "lr": ("0x1p-3",), "gradient_norm": "0x1p+0",
                             "state": {}, "samples_seen": 8 * number, "ids": "", "skipped": False}  # fmt: skip
    return StepDone(rank, number, **{**plain, **others})


def said(what: Any, attempt: int | None = 0, file: str = "worker", n: int = 0, t_ns: int = 0) -> Event[Any]:
    """An event; who does not care about the line leaves it out."""
    return Event(file, n, t_ns, n, attempt, what)


def recorded(role: str, pid: int = 1, *lines: Line, name: str = "", boot: str = "b", opened: bool = True,
             closed: bool = False, t_ns: int = 0, **more: Any) -> HistoryFile:  # fmt: skip
    """The file of one process: `opened`, at t_ns, and these lines from 1 on. opened: whether it says whose it is."""
    name = name or f"{role}-h-{pid}-{10 * pid}.jsonl"
    who = Opened(RUN, role, pid, 10 * pid, "h", boot)
    events = [said(who, None, name, 0, t_ns)]
    for n, (attempt, what, *at) in enumerate(lines, 1):
        events.append(said(what, attempt, name, n, *at or (n,)))
    empty = HistoryFile(name, who if opened else None, (), (), False, closed, **more)
    return _with(empty, events)


def _with(file: HistoryFile, events: Sequence[Event[Any]]) -> HistoryFile:
    others = tuple(event for event in events if not isinstance(event.what, StepDone))
    steps = Steps.of([event for event in events if isinstance(event.what, StepDone)])
    return replace(file, events=file.events + others, steps=Steps(file.steps.blocks + steps.blocks))


def _history(files: Iterable[HistoryFile], events: Sequence[Event[Any]], receipts: Iterable[Receipt]) -> History:
    """events: beside those of the files, each of the file that it names."""
    named = {file.name: file for file in files}
    by_kind: dict[type, Any] = {}
    for event in (*(event for file in named.values() for event in file.events), *events):
        by_kind.setdefault(type(event.what), []).append(event)
    added = Steps.of(by_kind.pop(StepDone, []))
    if done := Steps([block for file in named.values() for block in file.steps.blocks] + list(added.blocks)):
        by_kind[StepDone] = done
    for name in dict.fromkeys(event.file for event in events):
        file = named.get(name) or HistoryFile(name, None, (), (), False, True)
        named[name] = _with(file, [event for event in events if event.file == name])
    return History(named, tuple(receipts), by_kind=by_kind)


def receipt(kind: str = "sigkill", role: str = "rank", rank: int | None = 0, attempt: int = 0, pid: int = 1,
            **others: Any) -> Receipt:  # fmt: skip
    made = Receipt("f0", RUN, attempt, role, rank, "step.end", 1, kind, Process(pid, 10 * pid, "h"), 0, "b", None, None)
    return replace(made, **others)


# -- all of it


def evidence(
    entries: Entries | Iterable[Entry] = (),
    files: Iterable[HistoryFile] = (),
    receipts: Iterable[Receipt] = (),
    manifests: Mapping[str, ManifestSeen] | Iterable[ManifestSeen] = (),
    begun: RunBegun | None = None,
    plan: PlanSpec | None = None,
    *,
    events: Iterable[Event[Any]] = (),
    seen: Mapping[str, FileSeen] | Iterable[FileSeen] = (),
    present: Iterable[str] | None = None,
    log: Log | None = None,
    **more: Any,
) -> Evidence:
    """files: of the history; events: beside theirs. seen, present: in the store. log: if it is not just entries."""
    whole = log or Log(tuple(entries.made if isinstance(entries, Entries) else entries), (), RUN)
    if not isinstance(manifests, Mapping):
        manifests = {each.manifest.name if each.manifest else Path(each.path).stem: each for each in manifests}
    if not isinstance(seen, Mapping):
        seen = {each.path: each for each in seen}
    store = Store(whole, manifests, seen, frozenset(seen if present is None else present))
    return Evidence(store, _history(files, tuple(events), receipts), begun, plan, Dataset("data"), **more)


def with_events(evidence: Evidence, kind: type, change: Callable[[Event[Any]], Event[Any] | None]) -> Evidence:
    """Each event of the kind changed, or left out."""
    changed = [new for event in evidence.history.by_kind[kind] if (new := change(event)) is not None]
    by_kind = {**evidence.history.by_kind, kind: changed}
    return replace(evidence, history=replace(evidence.history, by_kind=by_kind))
