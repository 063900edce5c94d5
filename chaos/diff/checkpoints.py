"""Two checkpoints → which parts differ, what that looks like, and what it can change. Pure.

One moment has less to tell than a trace: what was lost shows by its own emptiness, by counters that contradict each
other, or by how small the difference is.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chaos.diff.causes import ROUNDING, Cause, Finding, Kind
from chaos.diff.causes_restored import shift_text
from chaos.diff.parts import Role, generator_name, role_of
from chaos.diff.tensors import Checkpoint, PartDifference, numbers, part_differences


@dataclass(frozen=True)
class CheckpointComparison:
    """structure: prose, of what makes the two incomparable part by part. metadata, settings: name → (A, B), differing.

    earliest_update: the first one that the difference can change. checked: number of parts compared.
    """

    structure: tuple[str, ...]
    parts: tuple[PartDifference, ...]
    findings: tuple[Finding, ...]
    settings: Mapping[str, tuple[str, str]]
    metadata: Mapping[str, tuple[str, str]]
    checked: int
    earliest_update: int | None

    @property
    def differs(self) -> bool:
        return bool(self.structure or self.parts)


def compare_checkpoints(a: Checkpoint, b: Checkpoint) -> CheckpointComparison:
    """Part by part, rank by rank."""
    structure = tuple(
        f"A is of {what} {x}, B of {what} {y}"
        for what, x, y in (("step", a.manifest.step, b.manifest.step), ("cursor", a.manifest.cursor, b.manifest.cursor),
                           ("world size", a.manifest.world, b.manifest.world)) if x != y
    )  # fmt: skip
    parts = part_differences(a, b)
    return CheckpointComparison(
        structure, parts, tuple(_findings(a, b, parts)), _settings(a, b), _metadata(a, b),
        len(a.parts.keys() | b.parts.keys()), _earliest(b, parts) if parts else None,
    )


def _earliest(b: Checkpoint, parts: Sequence[PartDifference]) -> int:
    """The next update, but if only the scheduler differs: its next rate is in the optimizer already."""
    only_scheduler = {role_of(part.part) for part in parts} == {Role.SCHEDULER}
    return b.manifest.step + (2 if only_scheduler else 1)


def _settings(a: Checkpoint, b: Checkpoint) -> dict[str, tuple[str, str]]:
    prints = ((name, getattr(a.manifest.fingerprints, name), getattr(b.manifest.fingerprints, name))
              for name in ("dataset", "plan", "config", "code"))
    return {name: (x, y) for name, x, y in prints if x != y}


def _metadata(a: Checkpoint, b: Checkpoint) -> dict[str, tuple[str, str]]:
    pairs = {
        "run": (a.manifest.run, b.manifest.run),
        "attempt": (str(a.manifest.attempt), str(b.manifest.attempt)),
        "parent": (str(a.manifest.parent), str(b.manifest.parent)),
        "histories": tuple(", ".join(f"{r.history.file} line {r.history.n}" for r in side.manifest.ranks)
                           for side in (a, b)),
        "files": tuple(", ".join(f.digest for f in side.manifest.files) for side in (a, b)),
    }  # fmt: skip
    return {name: (pair[0], pair[1]) for name, pair in pairs.items() if pair[0] != pair[1]}


def _findings(a: Checkpoint, b: Checkpoint, parts: Sequence[PartDifference]) -> Iterator[Finding]:
    yield from _contradictions(b)
    wild = next((item for part in parts for item in part.items if not item.finite), None)
    if wild is not None:
        yield Finding((Cause(Kind.NOT_FINITE, wild.part, f"{wild.part}: {wild.detail}"),))
        return
    roles = {role_of(part.part) for part in parts}
    if _rounds(parts):
        largest = max(item.relative or 0.0 for part in parts for item in part.items)
        yield Finding((Cause(Kind.ROUNDING, parts[0].part, f"every difference is at most {largest:.1e} of the tensor's "
                             "largest number: rounding only"),))
        return
    if a.manifest.step != b.manifest.step:
        text = f"A is of step {a.manifest.step}, B of step {b.manifest.step}: give two of one step"
        yield Finding((Cause(Kind.OTHER_STATE, "progress", text),))
        return
    if Role.MODEL in roles and len(roles) > 2:
        text = "parameters and other parts differ: the two parted before this checkpoint; compare the runs to see where"
        yield Finding((Cause(Kind.OTHER_STATE, "model", text),))
        return
    for part in parts:
        yield Finding((_of_part(a, b, part),))


def _rounds(parts: Sequence[PartDifference]) -> bool:
    """Whether all that differs is numbers, and by little; losses and moments follow the parameters."""
    allowed = {Role.MODEL, Role.OPTIMIZER, Role.BUFFERS, Role.CURSOR}
    items = [item for part in parts for item in part.items]
    return (bool(items) and all(role_of(part.part) in allowed for part in parts)
            and all(item.relative is not None and item.relative <= ROUNDING for item in items))


def _of_part(a: Checkpoint, b: Checkpoint, part: PartDifference) -> Cause:
    role, where = role_of(part.part), "" if part.rank is None else f" of rank {part.rank}"
    first = part.items[0]
    if role is Role.OPTIMIZER and (why := _history_lost(a, b)):
        return Cause(Kind.HISTORY_LOST, part.part, why)
    if role is Role.GENERATOR:
        return Cause(Kind.RESEEDED, part.part, f"the {generator_name(part.part)} generator{where} is in another state: "
                     "re-seeded, or drawn from another number of times")
    if role is Role.SCHEDULER and (k := _counter(b, part, "last_epoch") - _counter(a, part, "last_epoch")):
        return Cause(Kind.RATE_SHIFTED, part.part, f"the scheduler{where} is {shift_text(k, 'update')}")
    if role is Role.CURSOR and (n := _counter(b, part, "cursor") - _counter(a, part, "cursor")):
        kind = Kind.CURSOR_AHEAD if n > 0 else Kind.CURSOR_BEHIND
        return Cause(kind, part.part, f"the cursor{where} is {shift_text(n, 'sample')}")
    if role is Role.SCALER:
        return Cause(Kind.SCALER_LOST, part.part, f"the gradient scaler{where} differs ({first.detail})")
    return Cause(Kind.OTHER_STATE, part.part, f"{part.part}{where} differs ({first.part}: {first.detail})")


def _history_lost(a: Checkpoint, b: Checkpoint) -> str:
    """Whether B's optimizer has nothing, only zeros, or fewer updates, where A's has something."""
    mine, theirs = ({name: numbers(view) for (_, name), view in side.tensors.items() if name.startswith("optimizer/")}
                    for side in (a, b))
    gone = sorted(mine.keys() - theirs.keys())
    if gone:
        return f"B's optimizer lacks {gone[0]} and {len(gone) - 1} more tensors: its history is lost"
    moments = [name for name in mine if not name.endswith("/step")]
    if moments and all(not np.any(theirs[name]) for name in moments) and any(np.any(mine[n]) for n in moments):
        return "every tensor of B's optimizer is zero: its history is lost"
    counts = [(float(mine[n][0]), float(theirs[n][0])) for n in mine if n.endswith("/step") and n in theirs]
    if counts and counts[0][0] != counts[0][1]:
        return f"B's optimizer counts {counts[0][1]:g} updates, A's {counts[0][0]:g}: part of its history is lost"
    return ""


def _field(side: Checkpoint, rank: int | None, part: str) -> Mapping[str, Any]:
    value = json.loads(side.texts.get((rank, part), "null"))
    return value if isinstance(value, dict) else {}


def _counter(side: Checkpoint, part: PartDifference, name: str) -> int:
    value = _field(side, part.rank, part.part).get(name)
    return value if isinstance(value, int) else 0


def _contradictions(b: Checkpoint) -> Iterator[Finding]:
    """Counters inside of B that are of different steps."""
    for rank in range(b.manifest.world):
        progress = _field(b, rank, "progress").get("step", b.manifest.step)
        scheduler = _field(b, rank, "scheduler").get("last_epoch", progress)
        for part, step in (("progress", progress), ("scheduler", scheduler)):
            if step != b.manifest.step:
                text = f"the {part} of rank {rank} in B is of step {step}, the checkpoint of step {b.manifest.step}"
                yield Finding((Cause(Kind.TWO_MOMENTS, part, f"{text}: state from two moments"),))
