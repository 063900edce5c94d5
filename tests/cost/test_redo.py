"""What is done again, counted by hand: of an update under way only where the struck passage tells how far it was."""

from __future__ import annotations

import pytest

from chaos.cost.records import Chosen, Restored, Seen, Shape, StepDone, Struck, Witnessed
from chaos.cost.redo import Redo, redone

SHAPE = Shape(ranks=2, microbatches=4, global_batch=16, steps=20, save_every=5)


def after(attempt: int, *events: object) -> list[Seen]:
    return [Seen("worker-h-1-1.jsonl", "b", n, attempt, what) for n, what in enumerate(events)]


def steps(upto: int, rank: int = 0, begin: int = 0) -> list[StepDone]:
    return [StepDone(rank, step + 1, 0.0, 0.1, 0.0) for step in range(begin, upto)]


def redo(strike: Struck | None, *events: list[Seen], attempt: int = 1) -> Redo:
    return redone(Witnessed(tuple(event for some in events for event in some)), SHAPE, attempt, strike)


def struck(point: str | None, hit: int | None, attempt: int = 0, role: str = "rank") -> Struck:
    return Struck(attempt, role, 0, point, hit, 1, 1, "b", 99)


BEFORE = after(0, Chosen(None, 0), *steps(7), *steps(8, rank=1))  # rank 1 was ahead by an update
RESTART = after(1, Chosen("s00000005-a0000", 5), Restored(0, 5, 0.1))


@pytest.mark.parametrize(
    ("strike", "partial"),
    [
        (None, None),
        (struck("step.begin", 9), 0),
        (struck("step.end", 8), 0),
        (struck("microbatch.fetched", 8 * 4 + 3), 2),
        (struck("microbatch.forward", 8 * 4 + 3), 2),
        (struck("microbatch.backward", 8 * 4 + 3), 3),
        (struck("microbatch.backward", 8 * 4 + 4), 4),
        (struck("microbatch.backward", 8 * 4 + 5), None),  # so many passages are of the update after
        (struck("microbatch.backward", 8 * 4 - 1), None),  # and these of the one before, which a peer has finished
        (struck("reduce.before", 9), 4),
        (struck("optimizer.after", 9), 4),
        (struck("scheduler.after", 8), 0),  # of the update that the other rank has finished
        (struck("shard.half", 2), None),
        (struck(None, None), None),
        (struck("microbatch.backward", None), None),
        (struck("publish.before", 2, role="committer"), None),
    ],
)
def test_how_far_the_update_under_way_was(strike: Struck | None, partial: int | None) -> None:
    microbatches = None if partial is None else 3 * 4 + partial
    assert redo(strike, BEFORE, RESTART) == Redo(5, 8, 3, microbatches, 3 * 16, partial)


def test_passages_count_from_what_their_attempt_began_with() -> None:
    again = after(1, *steps(7, begin=5)), after(2, Chosen("s00000005-a0000", 5), Restored(0, 5, 0.1))
    found = redo(struck("microbatch.backward", 2 * 4 + 1, attempt=1), BEFORE, RESTART, *again, attempt=2)
    assert found == Redo(5, 7, 2, 2 * 4 + 1, 2 * 16, 1)
    found = redo(struck("reduce.after", 3, attempt=1), BEFORE, RESTART, *again, attempt=2)
    assert found.partial == 4


def test_what_a_checkpoint_inside_a_step_holds_is_not_done_again() -> None:
    inside = after(1, Chosen("s00000005-m0003-a0000", 5), Restored(0, 5, 0.1, microbatch=3))
    found = redo(struck("microbatch.backward", 8 * 4 + 2), BEFORE, inside)
    assert found == Redo(5, 8, 3, 3 * 4 - 3 + 2, 3 * 16 - 3 * 4, 2)
    restart = after(2, Chosen("s00000005-m0003-a0000", 5), Restored(0, 5, 0.1, microbatch=3))
    again = after(1, *steps(7, begin=5)), restart
    # One passage ends update 6, four are of update 7: the sixth is the first of update 8.
    found = redo(struck("microbatch.backward", 6, attempt=1), BEFORE, inside, *again, attempt=2)
    assert found.partial == 1


def test_where_nothing_was_restored_nothing_is_known_but_what_had_been_done() -> None:
    assert redo(struck("step.end", 8), BEFORE) == Redo(None, 8, None, None, None, None)


def test_without_an_update_before_it_nothing_is_done_again() -> None:
    assert redo(None, after(0, Chosen(None, 0)), after(1, Chosen(None, 0))) == Redo(0, 0, 0, None, 0, None)


def test_a_choice_that_is_not_recorded_counts_as_the_beginning() -> None:
    found = redo(struck("microbatch.backward", 8 * 4 + 1), after(0, *steps(8)), RESTART)
    assert found.partial == 1
    assert redo(struck("reduce.before", 9), after(0, *steps(8)), RESTART).partial == 4
