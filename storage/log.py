"""The run's single sequence of entries, which alone says what is published (invariants 2 and 6).

`log/00000000.json` and so on, without gaps, each created exclusively and naming its predecessor's digest. A
writer reads the whole log before it appends, and appends at the next number only; if that is taken, it reads
again, and stops if a later fence is there. So between two supervisors, or a zombie and its successor, one
creation decides.

`read` checks form, not authority: an entry by an attempt that was already fenced can only come from a
defective writer. It stays readable, as evidence, and `selection` gives it no effect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from storage.entries import (
    Candidate,
    Choose,
    Entry,
    Fence,
    Parent,
    Publish,
    Retire,
    choose_fields,
    decode_entry,
    entry_body,
    fence_fields,
    publish_fields,
    retire_fields,
)
from storage.errors import AlreadyExists, Damaged, Fenced, LogBroken, Unavailable
from storage.objects import Objects, Reached, no_point
from storage.process import ProcessId
from storage.sealed import seal

__all__ = ["Candidate", "Choose", "CommitLog", "Entry", "Fence", "Parent", "Publish", "Retire", "entry_name"]

_FOLDER = "log"
# Given what the log holds: attempt and own fields of the entry to append, or the entry that is there already.
_Plan = Callable[[tuple[Entry, ...]], tuple[int, Mapping[str, Any]] | Entry]


def entry_name(seq: int) -> str:
    """Object name of entry `seq`."""
    return f"{_FOLDER}/{seq:08d}.json"


class CommitLog:
    """The commit log of one run. Safe to use from several threads; entries that were read are kept.

    Points passed while appending: `log.before_create` (the log is read), then those of `Objects.create`, `log.…`.
    """

    def __init__(self, objects: Objects, run: str, reached: Reached = no_point) -> None:
        self.run = run
        self._objects = objects
        self._reached = reached
        self._entries: list[Entry] = []
        self._lock = threading.Lock()

    def read(self) -> tuple[Entry, ...]:
        """Every entry so far, after syncing the folder.

        Raises LogBroken naming the entry for a gap, a wrong link, another run's entry or anything malformed,
        and also for an empty log beside manifests: a manifest is only ever written after a fence. Raises
        Unavailable if the store does not answer.
        """
        with self._lock:
            return self._refresh()

    def fence(self, config: str, owner: ProcessId) -> Fence:
        """Begin the next attempt; every earlier one is over from here on. config: the configuration's digest.

        Never joins another caller's fence: of two at once, one gets k and the other k+1, fencing the first.
        """

        def plan(entries: tuple[Entry, ...]) -> tuple[int, Mapping[str, Any]]:
            return _latest_attempt(entries) + 1, fence_fields(config, owner)

        entry = self._append("fence", plan)
        assert isinstance(entry, Fence)
        return entry

    def choose(self, attempt: int, parent: Parent | None, candidates: Sequence[Candidate]) -> Choose:
        """Record what the attempt starts from (None: step 0). candidates: all, in order of examination.

        An attempt chooses once. The same choice again returns the entry that is there; another one raises
        ValueError, as does a parent that no entry published or that is not the chosen candidate. Raises
        Fenced.
        """
        listed = tuple(candidates)
        _check_choice(parent, listed)

        def plan(entries: tuple[Entry, ...]) -> tuple[int, Mapping[str, Any]] | Entry:
            made = [entry for entry in entries if isinstance(entry, Choose) and entry.attempt == attempt]
            if made and (made[0].parent, made[0].candidates) == (parent, listed):
                return made[0]
            _require_held(entries, attempt)
            if made:
                raise ValueError(f"attempt {attempt} has already made another choice (entry {made[0].seq})")
            if parent and parent not in [e.as_parent() for e in entries if isinstance(e, Publish)]:
                raise ValueError(f"parent {parent.name} with digest {parent.digest} was never published")
            return attempt, choose_fields(parent, listed)

        entry = self._append("choose", plan)
        assert isinstance(entry, Choose)
        return entry

    def publish(self, attempt: int, name: str, digest: str, step: int) -> Publish:
        """Publish a checkpoint by its manifest's digest. The same again returns the entry that is there.

        Raises Fenced if a later attempt has begun, ValueError if the name is published with another digest.
        """

        def plan(entries: tuple[Entry, ...]) -> tuple[int, Mapping[str, Any]] | Entry:
            made = [entry for entry in entries if isinstance(entry, Publish) and entry.name == name]
            if made and (made[0].attempt, made[0].digest, made[0].step) == (attempt, digest, step):
                return made[0]
            _require_held(entries, attempt)
            if made:
                raise ValueError(f"{name} is already published otherwise (entry {made[0].seq})")
            return attempt, publish_fields(name, digest, step)

        entry = self._append("publish", plan)
        assert isinstance(entry, Publish)
        return entry

    def retire(self, attempt: int, names: Sequence[str]) -> Retire:
        """Record that these checkpoints' state shards are about to be removed. Raises Fenced.

        `retention.retire` adds the guard that keeps a way back, and removes the files.
        """

        def plan(entries: tuple[Entry, ...]) -> tuple[int, Mapping[str, Any]]:
            _require_held(entries, attempt)
            return attempt, retire_fields(tuple(names))

        entry = self._append("retire", plan)
        assert isinstance(entry, Retire)
        return entry

    def require_current(self, attempt: int) -> tuple[Entry, ...]:
        """The log as it is now, in which `attempt` is still the latest. Raises Fenced if it is not."""
        entries = self.read()
        _require_held(entries, attempt)
        return entries

    def _append(self, kind: str, plan: _Plan) -> Entry:
        """Append what the plan says, planning anew after each entry that another writer appends first."""
        with self._lock:
            while True:
                entries = self._refresh()
                planned = plan(entries)
                if not isinstance(planned, tuple):
                    return planned
                attempt, own = planned
                seq, previous = len(entries), entries[-1].entry_digest if entries else None
                name = entry_name(seq)
                data, _ = seal(entry_body(self.run, seq, previous, attempt, kind, own))
                entry = _as_readers_see_it(data, name, self.run, seq, previous)
                self._reached("log.before_create")
                try:
                    self._objects.create(name, data, lambda point: self._reached(f"log.{point}"))
                except AlreadyExists:
                    if len(self._refresh()) == seq:
                        raise Unavailable(
                            name, "exists, but the listing of the log does not show it"
                        ) from None
                    continue
                self._entries.append(entry)
                return entry

    def _refresh(self) -> tuple[Entry, ...]:
        """Read what is new. Leaves what was read before as it is if anything is wrong."""
        names = self._objects.list(_FOLDER)
        for seq, name in enumerate(names):
            if f"{_FOLDER}/{name}" != entry_name(seq):
                raise LogBroken(f"{_FOLDER}/{name}", f"stands where {entry_name(seq)} must be")
        if len(names) < len(self._entries):
            raise LogBroken(entry_name(len(names)), "was read before and is gone")
        if not names and self._objects.list("manifests"):
            raise LogBroken(entry_name(0), "does not exist though the store holds manifests")
        entries = list(self._entries)
        for seq in range(len(entries), len(names)):
            entries.append(self._read_entry(seq, entries))
        self._entries = entries
        return tuple(entries)

    def _read_entry(self, seq: int, before: list[Entry]) -> Entry:
        name = entry_name(seq)
        previous = before[-1].entry_digest if before else None
        try:
            entry = decode_entry(self._objects.read(name), name, self.run, seq, previous)
        except Damaged as error:
            raise LogBroken(error.where, error.what) from error
        latest = _latest_attempt(before)
        if isinstance(entry, Fence) and entry.attempt != latest + 1:
            raise LogBroken(name, f"begins attempt {entry.attempt} where attempt {latest + 1} must begin")
        if not isinstance(entry, Fence) and entry.attempt > latest:
            raise LogBroken(name, f"is by attempt {entry.attempt}, which no fence before it began")
        return entry


def _as_readers_see_it(data: bytes, name: str, run: str, seq: int, previous: str | None) -> Entry:
    try:
        return decode_entry(data, name, run, seq, previous)
    except Damaged as error:
        raise ValueError(f"an entry with these values could not be read back: {error}") from error


def _latest_attempt(entries: Sequence[Entry]) -> int:
    """Number of the latest attempt; -1 if there is none."""
    return max((entry.attempt for entry in entries if isinstance(entry, Fence)), default=-1)


def _require_held(entries: Sequence[Entry], attempt: int) -> None:
    latest = _latest_attempt(entries)
    if latest > attempt:
        raise Fenced(latest)
    if latest < attempt:
        raise ValueError(f"attempt {attempt} was never begun by a fence; the latest is {latest}")


def _check_choice(parent: Parent | None, candidates: tuple[Candidate, ...]) -> None:
    chosen = [Parent(c.name, c.digest, c.step) for c in candidates if c.status == "chosen"]
    if chosen != ([] if parent is None else [parent]):
        raise ValueError("the parent must be the one candidate that is marked chosen, or None if none is")
