"""Evidence without files: a log, what processes recorded, what the run was. What is not named is empty."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from chaos.audit.events import Event, Opened
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
from chaos.audit.facts import Head, Process, Receipt, RunBegun
from chaos.audit.formats import PARTIAL_PARTS, RANK_PARTS, SHARED_PARTS

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


def checkpoint(step: int, attempt: int, microbatch: int = 0) -> Ref:
    """As the store names a checkpoint. Its digest follows from its name."""
    name = f"s{step:08d}{f'-m{microbatch:04d}' if microbatch else ''}-a{attempt:04d}"
    return Ref(name, f"sha256:{name}", step)


def note(of: Ref, status: str = "chosen", reason: str = "") -> Candidate:
    """As a choose entry lists a checkpoint."""
    return Candidate(of.name, of.digest, of.step, status, reason)


def manifest(of: Ref, attempt: int = 0, world: int = 1, **changes: Any) -> Manifest:
    """That of a checkpoint whose parts and files all have the digest `d`."""
    parts = RANK_PARTS | PARTIAL_PARTS if of.moment[1] else RANK_PARTS
    ranks = tuple(
        RankNamed(rank, dict.fromkeys(sorted(parts), "d"), {}, Head("worker.jsonl", 0, "c")) for rank in range(world)
    )
    named = tuple(
        FileNamed(path, kind, rank, 1, "d") for rank in range(world)
        for kind, path in (("shard", shard(of, rank)), ("ledger", segment(of, rank)))
    )  # fmt: skip
    made = Manifest(RUN, of.name, attempt, of.step, world, of.step * BEGUN.global_batch, None,
                    Fingerprints("d", "p", "c", "v"), named, {}, dict.fromkeys(sorted(SHARED_PARTS), "d"), ranks,
                    of.moment[1])  # fmt: skip
    return replace(made, **changes)


def shard(of: Ref, rank: int = 0) -> str:
    return f"shards/{of.name}-r{rank:04d}.safetensors"


def segment(of: Ref, rank: int = 0) -> str:
    return f"ledger/{of.name}-r{rank:04d}.arrow"


def stored(*manifests: Manifest, lost: Iterable[str] = (), unreadable: Iterable[str] = ()) -> dict[str, Any]:
    """What of a store holds these checkpoints, whole but for files that are lost or cannot be read."""
    seen, files = {}, {}
    for each in manifests:
        path = f"manifests/{each.name}.json"
        if path not in lost:
            seen[each.name] = ManifestSeen(path, each, f"sha256:{each.name}")
        for named in each.files:
            cannot = named.path in unreadable
            why = "cannot be read" if cannot else None
            if named.path not in lost:
                files[named.path] = FileSeen(named.path, 1, named.digest, problem=why, unreadable=cannot)
    return {"manifests": seen, "files": files}


def damage(path: str, attempt: int = 0, **more: Any) -> Receipt:
    """The receipt of one."""
    target = Process(1, 1, "h")
    made = Receipt("f0", RUN, attempt, "store", None, None, None, "damage", target, 0, "b", None, None, path)
    return replace(made, **more)


class Entries:
    """A log under construction: fence, choose, publish, and so on, in turn."""

    def __init__(self) -> None:
        self.made: list[Entry] = []
        self.attempt = -1

    def fence(self, owner: Process = OWNER) -> Entries:
        self.attempt += 1
        self.made.append(Fence(len(self.made), self.attempt, "sha256:t", owner))
        return self

    def choose(self, parent: Ref | None, *listed: Candidate) -> Entries:
        self.made.append(Choose(len(self.made), self.attempt, parent, listed))
        return self

    def publish(self, *steps: int, microbatch: int = 0) -> Entries:
        for step in steps:
            named = checkpoint(step, self.attempt, microbatch)
            self.made.append(Publish(len(self.made), self.attempt, named.name, named.digest, named.step))
        return self


def said(what: Any, attempt: int | None = 0, file: str = "worker.jsonl", n: int = 0, t_ns: int = 0) -> Event[Any]:
    return Event(file, n, t_ns, n, attempt, what)


def history(
    events: Iterable[Event[Any]], opened: dict[str, Opened] | None = None, receipts: tuple[Receipt, ...] = ()
) -> History:
    """opened: who wrote which file, of those of which that matters."""
    by_kind: dict[type, list[Event[Any]]] = {}
    for event in events:
        by_kind.setdefault(type(event.what), []).append(event)
    files = {
        name: HistoryFile(name, (opened or {}).get(name), tuple(e for e in events if e.file == name), (), False, True)
        for name in dict.fromkeys([*(event.file for event in events), *(opened or {})])
    }
    return History(files, receipts, (), by_kind)


def evidence(
    entries: Entries, *events: Event[Any], run: RunBegun | None = BEGUN, opened: dict[str, Opened] | None = None,
    receipts: tuple[Receipt, ...] = (), **store: Any,
) -> Evidence:  # fmt: skip
    """store: manifests, files, present, or a log of its own."""
    whole = {"log": Log(tuple(entries.made), (), RUN), "manifests": {}, "files": {}, "present": frozenset(), **store}
    return Evidence(Store(**whole), history(events, opened, receipts), run, None, NO_DATA)
