"""What was trained again, counted from the history (invariant 8): steps, microbatches, samples. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from chaos.cost.records import Chosen, Restored, Shape, StepDone, Struck, Witnessed

_DONE = {"microbatch.fetched": -1, "microbatch.forward": -1, "microbatch.backward": 0}
_NONE_DONE = ("step.begin", "step.end")
_ALL_DONE = ("reduce.before", "reduce.after", "optimizer.before", "optimizer.after", "scheduler.after")


@dataclass(frozen=True)
class Redo:
    """greatest: updates finished before the strike on any rank. partial: backward passes of the update under way, on
    the rank that was struck; None where its passage does not tell. Of the others None: nothing was restored.
    """

    restored: int | None
    greatest: int
    steps: int | None
    microbatches: int | None
    samples: int | None
    partial: int | None


def redone(witnessed: Witnessed, shape: Shape, attempt: int, strike: Struck | None) -> Redo:
    """By this attempt, of what the last one that trained before it had done."""
    trained = [event for event in witnessed.of(StepDone) if event.attempt is not None and event.attempt < attempt]
    last = max((event.attempt for event in trained if event.attempt is not None), default=None)
    greatest = max((event.what.step for event in trained if event.attempt == last), default=0)
    chosen = next(iter(witnessed.of(Chosen, attempt)), None)
    if chosen is None:
        return Redo(None, greatest, None, None, None, None)
    restored, inside = chosen.what.step, _inside(witnessed, attempt)
    steps = max(0, greatest - restored)
    partial = None if strike is None else _partial(witnessed, shape, strike, greatest)
    size = shape.global_batch // shape.microbatches
    microbatches = None if partial is None else max(0, steps * shape.microbatches - inside + partial)
    return Redo(restored, greatest, steps, microbatches, max(0, steps * shape.global_batch - inside * size), partial)


def _inside(witnessed: Witnessed, attempt: int) -> int:
    """Microbatches of the next update that the restored checkpoint holds."""
    return max((event.what.microbatch for event in witnessed.of(Restored, attempt)), default=0)


def _partial(witnessed: Witnessed, shape: Shape, strike: Struck, greatest: int) -> int | None:
    """Backward passes that the struck rank had done of the update after `greatest`, by the count of its passages."""
    if strike.role != "rank" or strike.point is None or strike.hit is None:
        return None
    if strike.point in _NONE_DONE:
        return 0
    if strike.point in _ALL_DONE:
        started = next((e.what.step for e in witnessed.of(Chosen, strike.attempt)), 0)
        return shape.microbatches if started + strike.hit > greatest else 0  # else a peer had finished that update
    if strike.point not in _DONE:
        return None
    began = next((e.what.step for e in witnessed.of(Chosen, strike.attempt)), 0) * shape.microbatches
    done = began + _inside(witnessed, strike.attempt) + strike.hit + _DONE[strike.point] - greatest * shape.microbatches
    return done if 0 <= done <= shape.microbatches else None
