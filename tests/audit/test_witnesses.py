"""Look-ups in a history in memory: by kind, by attempt, by rank, and in which boot."""

from __future__ import annotations

from evidence_by_hand import evidence, recorded, step

from chaos.audit.events import Joined, Restored
from chaos.audit.witnesses import boot, events, instant, restored_by_attempt, steps, steps_by_attempt


def restored(rank: int) -> Restored:
    return Restored(rank, None, None, 0, 0, {}, {})


FIRST = recorded(
    "worker", 1, (0, Joined(0), 5), (0, restored(0), 6), (0, step(0, 1), 7), (0, step(0, 3), 8), (0, step(0, 2), 9),
    (1, restored(0), 10), (None, restored(7), 11), (None, step(0, 9), 12),
)  # fmt: skip
SECOND = recorded(
    "worker", 2, (0, restored(1), 6), (0, step(1, 2), 7), (2, step(1, 4), 8), (3, step(0, -3), 9), boot="c"
)
NAMELESS = recorded("worker", 3, (0, Joined(2), 5), opened=False)
ALL = evidence(files=[FIRST, SECOND, NAMELESS])


def test_events_are_of_exactly_one_kind_file_by_file() -> None:
    assert [(event.file, event.n) for event in events(ALL, Joined)] == [(FIRST.name, 1), (NAMELESS.name, 1)]
    assert [event.what.rank for event in events(ALL, Restored)] == [0, 0, 7, 1]
    assert list(events(evidence(), Joined)) == []


def test_all_updates_are_there_in_columns() -> None:
    assert steps(ALL).step.tolist() == [1, 3, 2, 9, 2, 4, -3]
    assert len(steps(evidence())) == 0


def test_the_boot_is_what_the_file_says_in_its_first_line() -> None:
    assert [boot(ALL, name) for name in (*ALL.history.files, "nowhere")] == ["b", "c", None, None]
    assert [instant(ALL, event) for event in events(ALL, Joined)] == [("b", 5), (None, 5)]


def test_how_far_each_rank_of_each_attempt_came() -> None:
    """Not below nothing, and nothing of what belongs to no attempt."""
    assert steps_by_attempt(ALL) == {0: {0: 3, 1: 2}, 2: {1: 4}, 3: {0: 0}}
    assert steps_by_attempt(evidence()) == {}


def test_what_each_attempt_restored() -> None:
    found = restored_by_attempt(ALL)
    assert {attempt: [event.what.rank for event in own] for attempt, own in found.items()} == {0: [0, 1], 1: [0]}
