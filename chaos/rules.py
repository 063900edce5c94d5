"""Rules of an experiment file that join fields: numbers that cannot work, passages that cannot happen.

Pure: settings in, findings out. A finding is a path in the file and what is wrong there.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from dataclasses import dataclass

from chaos.marked_yaml import Loc
from chaos.points import CATALOGUE, Pace, Role, is_user_point, nearest
from chaos.schema import AtSettings, ExperimentSettings, FaultSettings, GateSettings, RunSettings

BUILT_IN_WORKLOADS = ("bytelm", "linreg", "tiny")
_FIELDS = {"damage": "damage", "grace_s": "sigterm", "slow": "slow", "outage": "outage"}  # field → the kind that has it
_NEEDED = {
    "damage": "which file, and how; {} damages a bit of rank 0's shard",
    "slow": "how much, and how often, such as {delay_s: 0.2, passages: 10}",
    "outage": "for how long, such as {operations: 5} or {for_s: 2}",
}
_DONE_TO_STORE = {"damage": "damaged", "stray": "given another run's files"}
_OF_RANKS = {"sigterm": "the notice is for a rank, which can save", "slow": "a straggler is a rank"}
_HARMLESS = {"damage": "a damage", "stray": "a stray file", "slow": "a delay", "outage": "an outage"}
_NOT_FROM_OUTSIDE = {"exception": "an exception", "slow": "a delay", "outage": "an outage"}


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong at one place of the file."""

    loc: Loc
    what: str
    unknown_point: bool = False


def findings(settings: ExperimentSettings) -> Iterator[Finding]:
    """Everything that is wrong, in the file's order."""
    yield from _run(settings.run)
    seen: dict[str, int] = {}
    for index, fault in enumerate(settings.faults):
        yield from _fault(fault, settings.run, ("faults", index))
        passage = fault.at.model_dump_json()
        if fault.at.random_s is None and passage in seen:
            what = f"the same as that of faults[{seen[passage]}]: only one can strike there"
            yield Finding(("faults", index, "at"), what)
        seen.setdefault(passage, index)


def _run(run: RunSettings) -> Iterator[Finding]:
    place, colon, function = run.workload.rpartition(":")
    if run.workload not in BUILT_IN_WORKLOADS and not (colon and place and function.isidentifier()):
        near = difflib.get_close_matches(run.workload, BUILT_IN_WORKLOADS, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        names = ", ".join(BUILT_IN_WORKLOADS)
        yield Finding(
            ("run", "workload"),
            f"{run.workload!r} is neither built in ({names}) nor package.module:build nor "
            f"path/to/file.py:build{hint}",
        )
    between = run.save_every_microbatches
    if between is not None and between % run.microbatches == 0:
        yield Finding(
            ("run", "save_every_microbatches"),
            f"{between} is a multiple of microbatches ({run.microbatches}): no checkpoint would lie inside a step; "
            f"use save_every: {between // run.microbatches}",
        )
    share = run.ranks * run.microbatches
    if run.global_batch % share:
        below = run.global_batch // share * share
        choice = f"{below} or {below + share}" if below else f"{share}"
        yield Finding(
            ("run", "global_batch"),
            f"{run.global_batch} is not divisible by ranks x microbatches = "
            f"{run.ranks} x {run.microbatches} = {share}; use {choice}",
        )


def _fault(fault: FaultSettings, run: RunSettings, loc: Loc) -> Iterator[Finding]:
    at = fault.at
    if at.attempt >= run.max_attempts:
        what = f"{at.attempt}: attempts are 0 to {run.max_attempts - 1} (max_attempts)"
        yield Finding((*loc, "at", "attempt"), what)
    if at.role == "standby" and at.attempt:
        yield Finding((*loc, "at", "attempt"), f"{at.attempt}: a standby serves no attempt yet; leave it out")
    yield from _rank(at.role, at.rank, run, (*loc, "at"))
    yield from _moment(fault, (*loc, "at"))
    if at.point is not None:
        yield from _passage(at.role, at.point, at.hit or 1, run, (*loc, "at"))
    yield from _of_kind(fault, run, loc)
    if fault.gate is not None:
        yield from _gate(fault.gate, at, run, (*loc, "gate"))


def _of_kind(fault: FaultSettings, run: RunSettings, loc: Loc) -> Iterator[Finding]:
    """What one kind of fault has or needs that others do not."""
    for field, kind in _FIELDS.items():
        if getattr(fault, field) is not None and fault.kind != kind:
            yield Finding((*loc, field), f"belongs to kind {kind}, not to {fault.kind}")
    for field, kind in _FIELDS.items():
        if fault.kind == kind and getattr(fault, field) is None and field in _NEEDED:
            yield Finding((*loc, field), f"is missing: {_NEEDED[field]}")
    if fault.kind in ("damage", "stray") and (fault.at.role != "supervisor" or fault.at.point is None):
        what = (
            f"the store is {_DONE_TO_STORE[fault.kind]} at a point of role supervisor, such as recover.fence.before, "
            "while nothing trains"
        )
        yield Finding((*loc, "at", "role"), what)
    if fault.kind in ("sigterm", "slow") and fault.at.role != "rank":
        what = f"{fault.at.role}: {_OF_RANKS[fault.kind]}"
        yield Finding((*loc, "at", "role"), what)
    if fault.kind == "outage" and fault.at.role not in ("rank", "committer", "supervisor"):
        what = f"{fault.at.role}: uses no store; ranks, the committer and the supervisor do"
        yield Finding((*loc, "at", "role"), what)
    if fault.gate is not None and fault.kind in _HARMLESS:
        yield Finding((*loc, "gate"), f"is let go by a death: {_HARMLESS[fault.kind]} kills nothing")
    yield from _sizes(fault, run, loc)


def _sizes(fault: FaultSettings, run: RunSettings, loc: Loc) -> Iterator[Finding]:
    if fault.damage is not None and fault.damage.rank >= run.ranks:
        yield Finding((*loc, "damage", "rank"), f"{fault.damage.rank}: ranks are 0 to {run.ranks - 1}")
    if fault.slow is not None and fault.slow.delay_s >= run.hang_deadline_s:
        what = f"{fault.slow.delay_s:g}: would be taken for a hang; stay below hang_deadline_s, {run.hang_deadline_s:g}"
        yield Finding((*loc, "slow", "delay_s"), what)
    point, most = CATALOGUE.get(fault.at.point or ""), None
    if fault.slow is not None and point is not None and (most := _most_hits(point.pace, run)) is not None:
        last = (fault.at.hit or 1) + fault.slow.passages - 1
        if (fault.at.hit or 1) <= most < last:
            what = f"{fault.slow.passages}: the last would be hit {last}; {point.name} is passed at most {most} times"
            yield Finding((*loc, "slow", "passages"), f"{what} in an attempt here")
    if fault.outage is not None and (fault.outage.operations is None) == (fault.outage.for_s is None):
        yield Finding((*loc, "outage"), "needs exactly one of operations and for_s")


def _rank(role: str, rank: int | None, run: RunSettings, loc: Loc) -> Iterator[Finding]:
    if not Role(role).has_rank:
        if rank is not None:
            yield Finding((*loc, "rank"), f"{rank}: role {role} has no rank; leave it out")
        return
    if rank is None and role == Role.RANK:
        yield Finding((*loc, "rank"), f"is missing: role rank needs one of 0 to {run.ranks - 1}")
    if rank is not None and rank >= run.ranks:
        yield Finding((*loc, "rank"), f"{rank}: ranks are 0 to {run.ranks - 1}")


def _moment(fault: FaultSettings, loc: Loc) -> Iterator[Finding]:
    """Exactly one of a passage, a time and a random time."""
    at = fault.at
    given = [name for name in ("point", "after_s", "random_s") if getattr(at, name) is not None]
    if len(given) != 1:
        had = " and ".join(given) if given else "none"
        yield Finding(loc, f"needs exactly one of point (with hit), after_s and random_s; has {had}")
        return
    if given != ["point"]:
        if at.hit is not None:
            yield Finding((*loc, "hit"), f"counts passages of a point; {given[0]} has none")
        if fault.kind in _NOT_FROM_OUTSIDE:
            what = f"{_NOT_FROM_OUTSIDE[fault.kind]} needs a point: it cannot be done from outside"
            yield Finding((*loc, given[0]), what)
        if at.role == "data":
            yield Finding((*loc, "role"), "data: its tasks come and go; a fault there needs a point")
    if at.random_s is not None and at.random_s[0] >= at.random_s[1]:
        yield Finding((*loc, "random_s"), f"{at.random_s}: the first has to be below the second")


def _passage(role: str, name: str, hit: int, run: RunSettings, loc: Loc) -> Iterator[Finding]:
    if is_user_point(name):
        return
    point = CATALOGUE.get(name)
    if point is None:
        near = nearest(name)
        hint = f"the nearest is {near}" if near else "`killpoint points` lists them"
        yield Finding((*loc, "point"), f"there is no kill point {name!r}; {hint}", unknown_point=True)
        return
    if role not in point.roles:
        roles = " or ".join(point.roles)
        yield Finding((*loc, "role"), f"{role}: {name} is passed by role {roles} only")
    most = _most_hits(point.pace, run)
    if most is not None and hit > most:
        yield Finding((*loc, "hit"), f"{hit}: {name} is passed at most {most} times in an attempt here")


def _most_hits(pace: Pace, run: RunSettings) -> int | None:
    match pace:
        case Pace.MICROBATCH:
            return run.steps * run.microbatches
        case Pace.STEP:
            return run.steps
        case Pace.SAVE:
            inside = run.steps * run.microbatches // (run.save_every_microbatches or math.inf)
            return run.steps // run.save_every + 1 + int(inside)  # one more: the last step may be saved as well
        case _:
            return None


def _gate(gate: GateSettings, at: AtSettings, run: RunSettings, loc: Loc) -> Iterator[Finding]:
    yield from _rank(gate.role, gate.rank, run, loc)
    yield from _passage(gate.role, gate.point, gate.hit, run, loc)
    if (gate.role, gate.rank, gate.point, gate.hit) == (at.role, at.rank, at.point, at.hit or 1):
        yield Finding(loc, "is the passage that strikes: it would wait for itself")
