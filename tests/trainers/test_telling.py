"""Each step, publication and finding is told once, whoever reports it."""

from __future__ import annotations

import pickle
from pathlib import Path

from storage.log import CommitLog
from storage.objects import LocalObjects
from storage.process import current_process
from trainers.errors import NonFinite
from trainers.events import Event, NonFiniteFound, Published, StepDone
from trainers.reports import Heartbeat
from trainers.telling import Telling

FOUND = NonFiniteFound(1, 4, "gradient", "skip", 0.5, float("inf"), 1.0)


def beat(step: int, loss: float | None, *findings: NonFiniteFound) -> Heartbeat:
    return Heartbeat(9, "step.end", step, loss, 5, findings)


def test_what_is_told(tmp_path: Path) -> None:
    log, told = CommitLog(LocalObjects(tmp_path), "r1"), list[Event]()
    fence = log.fence("sha256:" + "0" * 64, current_process())
    log.choose(fence.attempt, None, ())
    telling = Telling(log, told.append)
    assert not telling.beat(0, 0, beat(0, None))
    assert telling.beat(0, 1, beat(1, 0.5))
    assert not telling.beat(0, 1, beat(1, 0.5))
    log.publish(fence.attempt, "s00000001-a0000", "sha256:" + "1" * 64, 1)
    assert telling.beat(0, 0, beat(1, 0.5))  # rank 0's progress is when the log is read
    telling.published()
    assert told == [StepDone(0, 1, 1, 0.5), StepDone(0, 0, 1, 0.5), Published(0, "s00000001-a0000", 1)]


def test_a_finding_of_all_ranks_is_told_once_even_if_no_step_is(tmp_path: Path) -> None:
    told: list[Event] = []
    telling = Telling(CommitLog(LocalObjects(tmp_path), "r1"), told.append)
    assert not telling.beat(1, 1, beat(3, None, FOUND))
    telling.beat(1, 0, beat(3, None, FOUND))
    telling.non_finite([FOUND])
    later = NonFiniteFound(2, 4, "gradient", "skip", 0.5, float("inf"), 1.0)  # the same step in another attempt
    telling.non_finite([later])
    assert told == [FOUND, later]


def test_a_step_whose_loss_is_not_a_number_is_told(tmp_path: Path) -> None:
    told: list[Event] = []
    assert Telling(CommitLog(LocalObjects(tmp_path), "r1"), told.append).beat(0, 1, beat(3, float("nan")))
    assert [type(event) for event in told] == [StepDone]


def test_the_error_reaches_another_process_whole() -> None:
    error = pickle.loads(pickle.dumps(NonFinite("step 4: so and so", FOUND)))
    assert (str(error), error.found) == ("step 4: so and so", FOUND)


def test_a_finding_in_words() -> None:
    assert str(FOUND) == "step 4: the gradient's norm is inf; update skipped"
    scaled = NonFiniteFound(0, 2, "scaled_gradient", "skip", 0.5, float("inf"), 65536.0)
    assert str(scaled) == "step 2: the gradient overflowed at scale 65536; update skipped"
    assert str(NonFiniteFound(0, 2, "loss", "stop", float("nan"), 1.0, 1.0)) == "step 2: the loss is nan; stopping"
