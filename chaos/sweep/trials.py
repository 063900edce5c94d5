"""Draws up the trials: one for each passage, as faults of an experiment with a prediction. Pure.

A trial's name says what it does, so that one that failed can be asked for again:
`rank1/shard.half/2` (attempt 0), `…@1` (attempt 1, after a first kill whose restore is known),
`rank0/gate:ledger.opened/2` (killed in training while its own save stands there), `A+B` (a pair).
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.points import Role, is_user_point
from chaos.sweep import predict
from chaos.sweep.outline import Outline, Who
from chaos.sweep.predict import Prediction

ANY_TIME = "(at a random time)"
BASE_SAVE = 1  # the checkpoint that the first kill of a trial in recovery leaves behind
_SAVE_STAGES = ("save.", "shard.", "ledger.")
_LOADS = ("recover.load.half", "recover.loaded")


@dataclass(frozen=True)
class Trial:
    """One trial. faults: as in an experiment file. predictions: one for each recovery; empty where none must come, and
    None where nothing is said beforehand: the ranks of a supervisor that is gone train on until somebody ends them.

    own_supervisor: what is struck is the supervisor, so the trial needs one of its own, and takes the run up again.
    """

    name: str
    faults: tuple[dict[str, Any], ...]
    predictions: tuple[Prediction, ...] | None
    own_supervisor: bool = False
    gated: bool = False

    @property
    def where(self) -> tuple[str, Who]:
        """Point and process of the last fault: its place on the map."""
        at = self.faults[-1]["at"]
        return at.get("point", ANY_TIME), (Role(at["role"]), at.get("rank"))

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Trial:
        """The inverse of `asdict`."""
        said = value["predictions"]
        predictions = None if said is None else tuple(Prediction.from_json(each) for each in said)
        return cls(**{**value, "faults": tuple(value["faults"]), "predictions": predictions})


def singles(outline: Outline) -> Iterator[Trial]:
    """A kill at every passage of attempt 0."""
    for (role, rank), points in sorted(outline.clean.items(), key=_process_order):
        for point, hits in points.items():
            for hit in range(1, hits + 1):
                yield _single(outline, role, rank, point, hit)
    for point, hits in outline.detection.items():
        first, known = base(outline), outline.clean.get((Role.SUPERVISOR, None), {}).get(point, 0)
        for hit in range(known + 1, hits + 1):  # those before are passed without a kill, and have their trials
            yield _on_top(first, outline, (Role.SUPERVISOR, None), point, hit, attempt=0)


def notices(outline: Outline) -> Iterator[Trial]:
    """A notice at every passage of a rank in attempt 0."""
    for (role, rank), points in sorted(outline.clean.items(), key=_process_order):
        for point, hits in points.items() if role is Role.RANK else ():
            for hit in range(1, hits + 1):
                fault = {**_fault(role, rank, point, hit), "kind": "sigterm"}
                expected = predict.of_notice(outline, point, hit)
                yield Trial(f"sigterm:{_who(role, rank)}/{point}/{hit}", (fault,), (expected,))


def recoveries(outline: Outline) -> Iterator[Trial]:
    """A first kill whose restore is known, and a second one at every passage of the recovery that follows."""
    for who, point, hit in _of_recovery(outline):
        yield _on_top(base(outline), outline, who, point, hit)


def gates(outline: Outline) -> Iterator[Trial]:
    """A rank is killed in training while its own save stands at each of its stages."""
    save = min(2, len(outline.due))
    step = outline.due[save - 1] + 1
    if step > outline.run.steps:
        return
    for rank in range(outline.run.ranks):
        stages = (p for p in outline.clean.get((Role.RANK, rank), {}) if p.startswith(_SAVE_STAGES))
        for stage in stages:
            if stage in ("save.staged", "save.queued"):  # passed by the thread that trains
                continue
            fault = _fault(Role.RANK, rank, "microbatch.forward", (step - 1) * outline.run.microbatches + 1)
            fault["gate"] = {"role": "rank", "rank": rank, "point": stage, "hit": save}
            expected = predict.gated(outline, save, stage, step)
            yield Trial(f"rank{rank}/gate:{stage}/{save}", (fault,), (expected,), gated=True)


def pairs(outline: Outline, count: int, seed: int) -> list[Trial]:
    """`count` pairs of a kill in attempt 0 and one in the recovery that follows, drawn without repetition."""
    possible = possible_pairs(outline)
    drawn = random.Random(seed).sample(possible, min(count, len(possible)))
    return [_on_top(first, outline, *second, name=f"{first.name}+") for first, second in drawn]


def possible_pairs(outline: Outline) -> list[tuple[Trial, tuple[Who, str, int]]]:
    """Each first kill, and each passage of the recovery in which a second one is sure to strike after it."""
    firsts = [trial for trial in singles(outline) if trial.predictions and len(trial.faults) == 1]
    seconds = [each for each in _of_recovery(outline) if each[0][0] is not Role.SUPERVISOR]
    return [(a, b) for a in firsts for b in seconds if _can_follow(outline, a, b[1])]


def base(outline: Outline) -> Trial:
    """The last rank dies in the step after next, once the first checkpoint is published: what is restored is known.

    Without a checkpoint before the last step it dies in that one, and nothing is restored.
    """
    run = outline.run
    step = min(outline.due[BASE_SAVE - 1] + 2, run.steps)
    fault = _fault(Role.RANK, run.ranks - 1, "microbatch.forward", (step - 1) * run.microbatches + 1)
    if outline.due[BASE_SAVE - 1] >= run.steps:
        return Trial("", (fault,), (Prediction((0,), (step - 1, step - 1)),))
    fault["gate"] = {"role": "rank", "rank": run.ranks - 1, "point": "save.done", "hit": BASE_SAVE}
    return Trial("", (fault,), (predict.gated(outline, BASE_SAVE, "save.done", step),), gated=True)


def chosen(
    trials: Iterable[Trial], points: Sequence[str], ranks: Sequence[int], sample: int | None, seed: int
) -> list[Trial]:
    """Those at one of the points and in one of the ranks (all, if none is named), or so many of them, drawn."""
    found = [
        trial for trial in trials
        if (not points or trial.where[0] in points) and (not ranks or trial.where[1][1] in (None, *ranks))
    ]  # fmt: skip
    if sample is None or sample >= len(found):
        return found
    drawn = set(random.Random(seed).sample(range(len(found)), sample))
    return [trial for index, trial in enumerate(found) if index in drawn]


def _process_order(item: tuple[Who, Any]) -> tuple[str, int]:
    (role, rank), _points = item
    return role.value, -1 if rank is None else rank


def _single(outline: Outline, role: Role, rank: int | None, point: str, hit: int) -> Trial:
    name, fault = f"{_who(role, rank)}/{point}/{hit}", _fault(role, rank, point, hit)
    if role in (Role.STANDBY, Role.DATA):
        return Trial(name, (fault,), ())
    if role is Role.SUPERVISOR:
        return Trial(name, (fault,), None, own_supervisor=True)
    of = predict.of_committer if role is Role.COMMITTER else predict.of_rank
    if is_user_point(point):
        anywhere = Prediction((0, *outline.due), (0, outline.run.steps))
        return Trial(name, (fault,), (anywhere,))
    return Trial(name, (fault,), (of(outline, point, hit),))


def _of_recovery(outline: Outline) -> Iterator[tuple[Who, str, int]]:
    """Passages of attempt 1 before it trains, and its first update."""
    for (role, rank), points in sorted(outline.recovery.items(), key=_process_order):
        for point, hits in points.items():
            if point.startswith("recover.") or (role is Role.SUPERVISOR and point.startswith(("log.", "supervisor."))):
                for hit in range(1, hits + 1):
                    yield (role, rank), point, hit


def _on_top(
    first: Trial, outline: Outline, who: Who, point: str, hit: int, *, attempt: int = 1, name: str = ""
) -> Trial:
    role, rank = who
    fault = _fault(role, rank, point, hit, attempt)
    name += f"{_who(role, rank)}/{point}/{hit}@{attempt}" if attempt else f"{_who(role, rank)}/{point}/{hit}"
    if role is Role.SUPERVISOR:
        return Trial(name, (*first.faults, fault), None, own_supervisor=True)
    assert first.predictions is not None
    expected = predict.with_second_kill(first.predictions[0], point)
    return replace(first, name=name, faults=(*first.faults, fault), predictions=expected)


def _can_follow(outline: Outline, first: Trial, point: str) -> bool:
    """Whether the recovery after `first` is sure to pass the point."""
    assert first.predictions is not None
    restored = first.predictions[0].restored
    if point in _LOADS:
        return min(restored) > 0
    return point != "recover.first_step" or max(restored) < outline.run.steps


def _who(role: Role, rank: int | None) -> str:
    return role.value if rank is None else f"{role.value}{rank}"


def _fault(role: Role, rank: int | None, point: str, hit: int, attempt: int = 0) -> dict[str, Any]:
    at: dict[str, Any] = {"attempt": attempt, "role": role.value, "point": point, "hit": hit}
    if rank is not None:
        at["rank"] = rank
    return {"kind": "sigkill", "at": at}
