"""Which state shards may go, and their removal (invariant 7: there is always a way back).

Only state shards are ever removed, and only after a retire entry: log, manifests and ledger stay, so the
history of consumed samples remains whole. Removal is not undone by a crash: what an entry retired and a crash
left lying is found by `leftovers` and removed by the same call again.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from storage.entries import Entry
from storage.log import CommitLog
from storage.manifest import NAME_PATTERN
from storage.objects import Objects, Reached, no_point
from storage.selection import current_lineage, published, retired

ALWAYS_KEPT = 2
_SHARD = re.compile(rf"(?P<name>{NAME_PATTERN})-r[0-9]{{4,}}\.safetensors")


@dataclass(frozen=True)
class Retirement:
    """What `retire` did. seq: of the entry that it appended, if any; removed: names of objects."""

    seq: int | None
    removed: tuple[str, ...]


def to_retire(entries: Sequence[Entry], keep: int, verified: Container[str]) -> tuple[str, ...]:
    """Names of the checkpoints that need not be kept, oldest first.

    keep: how many of the lineage must remain, at least 2. verified: names of those known to verify; only they
    count, so a damaged one never takes the place of a good one. Everything down to the keep-th verified
    checkpoint of the lineage stays. Older ones may go, and so may those on branches left behind. Nothing may
    go before `keep` checkpoints of the lineage verify, or while the latest attempt has not chosen. Pure.
    """
    if keep < ALWAYS_KEPT:
        raise ValueError(f"keep must be at least {ALWAYS_KEPT}, is {keep}: the newest and a way back from it")
    gone = retired(entries)
    kept: set[str] = set()
    good = 0
    for publish in current_lineage(entries) or ():
        if good == keep:
            break
        kept.add(publish.name)
        good += publish.name in verified and publish.name not in gone
    if good < keep:
        return ()
    return tuple(p.name for p in published(entries) if p.name not in kept and p.name not in gone)


def leftovers(entries: Iterable[Entry], shard_files: Iterable[str]) -> tuple[str, ...]:
    """Retired checkpoints of which some shard still lies there. shard_files: base names in `shards`. Pure."""
    lying = {match["name"] for name in shard_files if (match := _SHARD.fullmatch(name))}
    return tuple(sorted(lying & retired(entries)))


def retire(
    objects: Objects, log: CommitLog, attempt: int, names: Sequence[str], reached: Reached = no_point
) -> Retirement:
    """Record the retirement, then remove these checkpoints' shards.

    Points: retire.before, retire.logged, retire.listed, then for each file retire.after_unlink (its name is gone, but
    not durably) and retire.between, in the end retire.after. Names that are retired already are not recorded again;
    their remaining shards are removed. No names: nothing happens.

    Raises ValueError, removing nothing, for a name that is not published or is one of the newest two of the
    lineage; Fenced; StoreFull; Unavailable.
    """
    if not names:
        return Retirement(None, ())
    entries = log.require_current(attempt)
    _check_way_back(entries, names)
    fresh = [name for name in names if name not in retired(entries)]
    reached("retire.before")
    entry = log.retire(attempt, fresh) if fresh else None
    reached("retire.logged")
    removed = []
    files = objects.list("shards")
    reached("retire.listed")
    for file in files:
        match = _SHARD.fullmatch(file)
        if match and match["name"] in names:
            objects.remove(f"shards/{file}", lambda point: reached(f"retire.{point}"))
            removed.append(f"shards/{file}")
            reached("retire.between")
    reached("retire.after")
    return Retirement(None if entry is None else entry.seq, tuple(removed))


def _check_way_back(entries: Sequence[Entry], names: Iterable[str]) -> None:
    line = current_lineage(entries)
    if line is None:
        raise ValueError("nothing may be retired before the latest attempt has chosen")
    kept = {publish.name for publish in line[:ALWAYS_KEPT]}
    known = {publish.name for publish in published(entries)}
    for name in names:
        if name in kept or name not in known:
            why = "one of the newest two of the lineage" if name in kept else "not a published checkpoint"
            raise ValueError(f"{name} must not be retired: it is {why}")
