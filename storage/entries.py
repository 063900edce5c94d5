"""Entries of the commit log as values, and their form on disk. Pure.

Format `killpoint.log/1`; the package's README describes it. An entry's own digest is `entry_digest`; a
Publish also has `digest`, that of the manifest which it publishes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeAlias

from storage.errors import Damaged
from storage.fields import SEALED, Fields
from storage.process import ProcessId
from storage.sealed import unseal

FORMAT = "killpoint.log/1"
Status = Literal["chosen", "rejected", "not_examined"]
_STATUSES: Mapping[str, Status] = {
    "chosen": "chosen",
    "rejected": "rejected",
    "not_examined": "not_examined",
}
_COMMON = {"format", "run", "seq", "previous", "kind", "attempt"}


@dataclass(frozen=True)
class Parent:
    """The checkpoint that an attempt starts from. digest: its manifest's."""

    name: str
    digest: str
    step: int


@dataclass(frozen=True)
class Candidate:
    """One checkpoint that a choice could have taken, and what became of it. reason: empty unless rejected."""

    name: str
    digest: str
    step: int
    status: Status
    reason: str = ""


@dataclass(frozen=True)
class _Placed:
    """What every entry has: its place in the sequence, and the attempt that it is about."""

    seq: int
    previous: str | None
    entry_digest: str
    attempt: int


@dataclass(frozen=True)
class Fence(_Placed):
    """Attempt `attempt` begins, and every earlier one is over. config: digest of the configuration."""

    config: str
    owner: ProcessId

    @property
    def digest(self) -> str:
        """The entry's own digest."""
        return self.entry_digest


@dataclass(frozen=True)
class Choose(_Placed):
    """What the attempt starts from, None being step 0; all candidates, newest first."""

    parent: Parent | None
    candidates: tuple[Candidate, ...]

    @property
    def digest(self) -> str:
        """The entry's own digest."""
        return self.entry_digest


@dataclass(frozen=True)
class Publish(_Placed):
    """A checkpoint is published. digest: its manifest's, not the entry's."""

    name: str
    digest: str
    step: int

    def as_parent(self) -> Parent:
        return Parent(self.name, self.digest, self.step)


@dataclass(frozen=True)
class Retire(_Placed):
    """The state shards of these checkpoints are about to be removed."""

    names: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The entry's own digest."""
        return self.entry_digest


Entry: TypeAlias = Fence | Choose | Publish | Retire


def entry_body(
    run: str, seq: int, previous: str | None, attempt: int, kind: str, own: Mapping[str, Any]
) -> Any:
    """Body of an entry as it is sealed. own: the fields that only this kind has, as JSON values."""
    common = {
        "format": FORMAT,
        "run": run,
        "seq": seq,
        "previous": previous,
        "kind": kind,
        "attempt": attempt,
    }
    return {**common, **own}


def fence_fields(config: str, owner: ProcessId) -> dict[str, Any]:
    return {"config": config, "owner": asdict(owner)}


def choose_fields(parent: Parent | None, candidates: tuple[Candidate, ...]) -> dict[str, Any]:
    return {
        "parent": None if parent is None else asdict(parent),
        "candidates": [asdict(c) for c in candidates],
    }


def publish_fields(name: str, digest: str, step: int) -> dict[str, Any]:
    return {"name": name, "digest": digest, "step": step}


def retire_fields(names: tuple[str, ...]) -> dict[str, Any]:
    return {"names": list(names)}


_OWN = {
    "fence": {"config", "owner"},
    "choose": {"parent", "candidates"},
    "publish": {"name", "digest", "step"},
    "retire": {"names"},
}


def decode_entry(data: bytes, where: str, run: str, seq: int, previous: str | None) -> Entry:
    """The entry that must stand at `seq` of `run` after the entry with digest `previous`. Raises Damaged."""
    body, digest = unseal(data, where)
    kind = body.get("kind")
    if not isinstance(kind, str) or kind not in _OWN:
        raise Damaged(where, f"has the unknown kind {kind!r:.80}")
    fields = Fields(body, where, _COMMON | _OWN[kind])
    fields.constant("format", FORMAT)
    if fields.text("run") != run:
        raise Damaged(where, f"belongs to run {fields.text('run')!r}, not to {run!r}")
    if fields.count("seq") != seq:
        raise Damaged(where, f"is entry {fields.count('seq')} under the name of entry {seq}")
    if body["previous"] != previous:
        raise Damaged(where, f"names {body['previous']!r:.100} as its predecessor, which is {previous}")
    return _entry(kind, fields, (seq, previous, digest, fields.count("attempt")))


def _entry(kind: str, fields: Fields, place: tuple[int, str | None, str, int]) -> Entry:
    if kind == "fence":
        owner = fields.nested("owner", {"host", "pid", "start_ticks"})
        process = ProcessId(owner.text("host"), owner.count("pid"), owner.count("start_ticks"))
        return Fence(*place, fields.text("config"), process)
    if kind == "choose":
        parent = fields.optional(
            "parent", lambda key: _parent(fields.nested(key, {"name", "digest", "step"}))
        )
        where = f"{fields.where}: candidates"
        return Choose(*place, parent, tuple(_candidate(item, where) for item in fields.items("candidates")))
    if kind == "publish":
        return Publish(*place, fields.text("name"), fields.text("digest", SEALED), fields.count("step"))
    return Retire(*place, fields.names("names"))


def _parent(fields: Fields) -> Parent:
    return Parent(fields.text("name"), fields.text("digest", SEALED), fields.count("step"))


def _candidate(item: object, where: str) -> Candidate:
    fields = Fields(item, where, {"name", "digest", "step", "status", "reason"})
    status = _STATUSES.get(fields.text("status"))
    if status is None:
        raise fields.wrong("status", f"one of {sorted(_STATUSES)}")
    parent = _parent(fields)
    return Candidate(parent.name, parent.digest, parent.step, status, fields.free_text("reason"))
