"""What a kill must cost, said before it strikes (invariant 8): the step restored, and the updates done again.

Pure. A save that falls due waits for the one in flight, so past the staging of save n save n−1 is published, and
save n only once every rank has reported it. No rank can finish an update without all others, so none is more than one
update ahead. What remains open between these facts is a range; behind a gate nothing does.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from chaos.points import Pace, is_user_point
from chaos.sweep.outline import Outline

_EXACT_BEFORE = ("step.begin", "microbatch.fetched", "microbatch.forward", "microbatch.backward", "reduce.before")
_REPORTED = ("save.done",)
_BEFORE_CHOICE = ("recover.joining", "recover.joined", "recover.load.half", "recover.loaded")
_IN_THE_LOG = ("log.after_link", "log.after_unlink")
_OF_EACH_SHARD = ("retire.after_unlink", "retire.between")


@dataclass(frozen=True)
class Prediction:
    """Of one recovery: which steps may be restored, and the least and most that may have been finished before it.

    cut_short: it dies before its choice is in the log, so it restores nothing, and the next one has the same before it.
    """

    restored: tuple[int, ...]
    finished: tuple[int, int]
    cut_short: bool = False

    @property
    def exact(self) -> bool:
        """Whether nothing is left open."""
        return len(self.restored) == 1 and self.finished[0] == self.finished[1]

    def met(self, restored: int | None, redo_steps: int | None) -> bool:
        """Whether a recovery was one of those that were predicted; None: nothing was chosen."""
        if restored is None or redo_steps is None or self.cut_short:
            return self.cut_short and restored is None and redo_steps is None
        low, high = self.finished
        return restored in self.restored and max(0, low - restored) <= redo_steps <= max(0, high - restored)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Prediction:
        """The inverse of `asdict`."""
        low, high = value["finished"]
        return cls(tuple(value["restored"]), (low, high), value["cut_short"])

    def to_json(self) -> dict[str, Any]:
        """Field by field, with the redo that follows: for people, and for `results.jsonl`."""
        if self.cut_short:
            return {"restored_steps": [], "finished_steps": list(self.finished), "redo_steps": []}
        low, high = self.finished
        return {
            "restored_steps": list(self.restored), "finished_steps": list(self.finished),
            "redo_steps": [max(0, low - max(self.restored)), max(0, high - min(self.restored))],
        }  # fmt: skip


def of_rank(outline: Outline, point: str, hit: int) -> Prediction:
    """A rank is killed at this passage of attempt 0."""
    run, due = outline.run, outline.due
    if point.startswith(("save.", "shard.", "ledger.")):
        return _in_save(outline, point, hit)
    micro = _pace(point) is Pace.MICROBATCH
    step = (hit - 1) // run.microbatches + 1 if micro else hit
    staged = sum(1 for each in due if each < step)
    if point in _EXACT_BEFORE:
        finished = (step - 1, step - 1)
    elif point == "step.end":
        finished = (step, step)
    else:  # summed over ranks: a peer may have finished the update that this one had not
        finished = (step - 1, step)
    return Prediction(_last_two(due, staged), finished)


def _in_save(outline: Outline, point: str, hit: int) -> Prediction:
    due, steps = outline.due, outline.run.steps
    here = due[hit - 1]
    following = due[hit] if hit < len(due) else steps
    before = due[hit - 2] if hit > 1 else 0
    if point == "save.staged":
        return Prediction((before,), (here, here))
    if point == "save.queued":
        return Prediction((before, here), (here, here))
    published = point in _REPORTED
    return Prediction((here,) if published else (before,), (here, following))


def of_notice(outline: Outline, point: str, hit: int) -> Prediction:
    """A rank is given notice at this passage of attempt 0: nothing is done again, whatever step it is that is saved.

    It is the step whose reduction comes next; in the background, one of those that may be trained until that save is
    done.
    """
    run, due = outline.run, outline.due
    if point.startswith("recover."):
        steps = range(1, 2)
    elif is_user_point(point):
        steps = range(1, run.steps + 1)
    elif point.startswith(("save.", "shard.", "ledger.")):
        following = due[hit] if hit < len(due) else run.steps
        background = point not in ("save.staged", "save.queued")
        steps = range(due[hit - 1] + 1, following + 2 if background else due[hit - 1] + 2)
    else:
        step = (hit - 1) // run.microbatches + 1 if _pace(point) is Pace.MICROBATCH else hit
        next_one = step if point in _EXACT_BEFORE else step + 1
        steps = range(next_one, next_one + 1)
    restored = tuple(sorted({min(step, run.steps) for step in steps}))
    return Prediction(restored, (restored[0], restored[0]))


def of_committer(outline: Outline, point: str, hit: int) -> Prediction:
    """The committer is killed at this passage of attempt 0."""
    due, steps = outline.due, outline.run.steps
    if point.startswith("log."):
        number = sum(1 for kind in outline.committed[:hit] if kind == "publish")
        retiring = outline.committed[hit - 1] == "retire"
        published = retiring or point in _IN_THE_LOG
    elif point.startswith("retire."):
        number, published, retiring = _publishes_before_retire(outline, point, hit), True, True
    else:
        number, published, retiring = hit, point == "publish.after", False
    here, before = due[number - 1], due[number - 2] if number > 1 else 0
    ahead = number + 1 if retiring else number  # while shards are retired the ranks may train up to the save after next
    most = due[ahead] if ahead < len(due) else steps
    return Prediction((here,) if published else (before,), (here, most))


def _publishes_before_retire(outline: Outline, point: str, hit: int) -> int:
    retires = [index for index, kind in enumerate(outline.committed) if kind == "retire"]
    of_each = max(1, outline.run.ranks) if point in _OF_EACH_SHARD else 1
    index = retires[min((hit - 1) // of_each, len(retires) - 1)]
    return sum(1 for kind in outline.committed[:index] if kind == "publish")


def gated(outline: Outline, save: int, point: str, step: int) -> Prediction:
    """A rank is killed before the reduction of `step` while its own save number `save` stands at `point`."""
    published = point in _REPORTED
    due = outline.due
    restored = due[save - 1] if published else (due[save - 2] if save > 1 else 0)
    return Prediction((restored,), (step - 1, step - 1))


def with_second_kill(first: Prediction, point: str) -> tuple[Prediction, Prediction]:
    """A second kill at this point of attempt 1, by a rank: the same candidate again."""
    return replace(first, cut_short=point in _BEFORE_CHOICE), _after_recovery(first, point)


def _after_recovery(first: Prediction, point: str) -> Prediction:
    if point == "recover.first_step":  # one more update is done, by attempt 1, and what it trained is what counts
        return Prediction(first.restored, (min(first.restored) + 1, max(first.restored) + 1))
    return first


def _last_two(due: tuple[int, ...], staged: int) -> tuple[int, ...]:
    """Save number `staged` may be published or not; the one before it is."""
    if not staged:
        return (0,)
    return (due[staged - 2] if staged > 1 else 0, due[staged - 1])


def _pace(point: str) -> Pace:
    from chaos.points import CATALOGUE

    return CATALOGUE[point].pace if point in CATALOGUE else Pace.VARIES
