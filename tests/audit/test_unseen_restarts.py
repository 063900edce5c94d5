"""What a run's restarts and saves were too simple to show, from evidence in memory."""

from __future__ import annotations

from typing import Any

import pytest
from evidence_by_hand import chose, evidence, fence, published, receipt, recorded

from chaos.audit.events import FencedOff, Published, SaveDue, SaveStaged
from chaos.audit.evidence import Publish
from chaos.audit.unseen_restarts import restarts, saves, tails

NOTHING, FEW, DIGITS, INSIDE, FENCED = (
    "every restart began from nothing", "no restart had several candidates", "had the same number of digits",
    "no restart began inside a step", "no writer of a fenced attempt came back",
)  # fmt: skip


def told(*moments: tuple[int, int], restored: list[int | None], files: Any = ()) -> list[str]:
    """Of a run whose first attempt published these, and whose restarts took one of them each, or none."""
    line = [published(seq, 0, *moment) for seq, moment in enumerate(moments, 1)]
    log: list[Any] = [fence(0, 0), *line]
    for attempt, taken in enumerate(restored, 1):
        log += [fence(len(log), attempt), chose(len(log) + 1, attempt, None if taken is None else line[taken])]
    sentences = list(restarts(evidence(log, files)))
    all_ = (NOTHING, FEW, DIGITS, INSIDE, FENCED)
    assert all(sum(words in sentence for words in all_) == 1 for sentence in sentences)
    return [words for words in all_ for sentence in sentences if words in sentence]


def test_without_a_restart_that_chose_nothing_is_said() -> None:
    assert list(restarts(evidence())) == []
    assert list(restarts(evidence([fence(0, 0), chose(1, 0, None), published(2, 0, 4)]))) == []
    assert list(restarts(evidence([fence(0, 0), published(1, 0, 4), fence(2, 1)]))) == []


@pytest.mark.parametrize(
    ("moments", "restored", "words"),
    [
        ([], [None], [NOTHING, FEW, INSIDE, FENCED]),
        ([(1, 0)], [None, None], [NOTHING, FEW, INSIDE, FENCED]),
        ([(1, 0)], [0], [FEW, INSIDE, FENCED]),
        ([(0, 1)], [0], [FEW, FENCED]),
        ([(1, 0)], [None, 0], [FEW, INSIDE, FENCED]),
        ([(1, 0), (2, 0)], [1], [DIGITS, INSIDE, FENCED]),
        ([(1, 0), (2, 0), (3, 0)], [2], [DIGITS, INSIDE, FENCED]),
        ([(9, 0), (10, 0)], [1], [INSIDE, FENCED]),
        ([(8, 0), (9, 0), (10, 0)], [2], [INSIDE, FENCED]),
        ([(9, 0), (9, 1)], [1], [DIGITS, FENCED]),
        ([(9, 0), (9, 2)], [0], [DIGITS, INSIDE, FENCED]),
        ([(9, 0), (10, 3)], [1], [FENCED]),
        ([(9, 1), (10, 0)], [1, 0], [FENCED]),  # one of several restarts
        ([(9, 0), (10, 0)], [0, 0], [INSIDE, FENCED]),  # the second one had only what the first had taken
        ([(8, 0), (9, 0), (10, 0)], [1, None], [INSIDE, FENCED]),
    ],
)
def test_what_restarts_chose_from(moments: list[tuple[int, int]], restored: list[int | None], words: list[str]) -> None:
    assert told(*moments, restored=restored) == words


def test_a_committer_that_was_fenced_off() -> None:
    late = recorded("committer", 1, (0, FencedOff("s", ""), 1))
    assert told((9, 0), (10, 3), restored=[1], files=[late]) == []


SAVES = "no save fell due while another was in flight"


def due(number: int, attempt: int | None = 1, t_ns: int = 0) -> Any:
    return attempt, SaveDue(0, number), t_ns


def staged(number: int, attempt: int | None = 1, microbatch: int = 0) -> Any:
    return attempt, SaveStaged(0, number, microbatch), 0


def there(publish: Publish, t_ns: int) -> Any:
    return publish.attempt, Published(publish.name, publish.step, publish.digest, publish.seq), t_ns


@pytest.mark.parametrize(
    ("worker", "committer", "met"),
    [
        ([due(2), staged(2)], [], False),
        ([due(2), staged(2), due(4)], [], True),  # the one before was never published
        ([due(2), staged(2), due(4, t_ns=10)], [there(published(1, 1, 2), 9)], False),
        ([due(2), staged(2), due(4, t_ns=10)], [there(published(1, 1, 2), 10)], False),
        ([due(2), staged(2), due(4, t_ns=10)], [there(published(1, 1, 2), 11)], True),
        ([due(2), staged(2, 1, 1), due(4, t_ns=10)], [there(published(1, 1, 2), 9)], True),  # another moment
        ([due(2), staged(2, 1, 1), due(4, t_ns=10)], [there(published(1, 1, 2, 1), 9)], False),
        ([due(2), staged(2), due(4, 2, 10)], [], False),  # of another attempt
        ([due(2, None), staged(2, None), due(4, None, 10)], [there(published(1, 0, 2), 9)], False),
        ([due(2, None), staged(2, None), due(4, None, 10)], [there(published(1, 1, 2), 9)], True),
        ([staged(2)], [], None),  # nothing fell due
        ([staged(2), staged(4), due(6, t_ns=10)],
         [there(published(1, 1, 2), 90), there(published(2, 1, 4), 9)], False),  # the last one before it counts
        ([staged(2), staged(4), due(6, t_ns=10), staged(6)],
         [there(published(1, 1, 2), 9), there(published(2, 1, 4), 90), there(published(3, 1, 6), 9)], True),
        ([staged(2), due(4, t_ns=10), staged(4), due(6, t_ns=20), staged(6)],
         [there(published(1, 1, 2), 9), there(published(2, 1, 4), 21)], True),
        ([staged(2), due(4, t_ns=10), staged(4), due(6, t_ns=20), staged(6)],
         [there(published(1, 1, 2), 9), there(published(2, 1, 4), 19)], False),
        ([due(2), staged(2), due(4, t_ns=10), due(6, t_ns=20)], [there(published(1, 1, 2), 9)], False),
        ([due(2, t_ns=1), due(3, 0), staged(3, 0), staged(2), due(4, t_ns=10)], [there(published(1, 1, 2), 11)], True),
    ],
)  # fmt: skip
def test_a_save_that_fell_due_while_the_one_before_was_in_flight(
    worker: list[Any], committer: list[Any], met: bool | None
) -> None:
    files = [recorded("worker", 1, *worker), recorded("committer", 1, *committer)]
    found = list(saves(evidence(files=files)))
    assert [SAVES in sentence for sentence in found] == ([True] if met is False else [])


def test_saves_of_another_process_or_in_another_boot_do_not_meet() -> None:
    two = [recorded("worker", 1, staged(2)), recorded("worker", 2, due(4))]
    assert len(list(saves(evidence(files=two)))) == 1
    booted = [recorded("worker", 1, staged(2), due(4, t_ns=1)),
              recorded("committer", 1, there(published(1, 1, 2), 9), boot="other")]  # fmt: skip
    assert len(list(saves(evidence(files=booted)))) == 1


def test_the_end_of_a_killed_process() -> None:
    assert list(tails(evidence())) == []
    assert list(tails(evidence(receipts=[receipt(kind="hang")]))) == []
    (sentence,) = tails(evidence(receipts=[receipt(kind="hang"), receipt()]))
    assert "what a killed process recorded last" in sentence
