"""What `lab cursor` takes for the published figures, and the input that waits for the kill, without a run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import ray.data
from training_kit import LocalStream, data_and_plan, write_data

from chaos.labs import cursor_trainer
from chaos.labs.cursor_cases import Blamed, Case, CursorLab, MidAccumulation
from chaos.labs.cursor_ledger import Applied
from chaos.labs.cursor_trainer import PlannedInput
from storage.sealed import seal
from trainers.errors import WorkloadError
from trainers.points import NoPoints
from trainers.source import Share

GAP = Blamed(3, "no gaps, no duplicates", "never applied")
RIGHT = Case("right", 10, 80, 10, 10, (), (), (), (), "valid", (), "right", ())
AHEAD = replace(RIGHT, name="prefetched", cursor=13, cursor_samples=104, next_batch=13, lost_batches=(10, 11, 12),
                verdict="invalid", blamed=(GAP,))
BEHIND = replace(RIGHT, name="older", cursor=8, cursor_samples=64, next_batch=8, twice_batches=(8, 9),
                 verdict="invalid", blamed=(GAP,))
MIDDLE = MidAccumulation("microbatch.backward", 10, 0, (1, 2, 3, 4, 5, 6), (10, 1))


def lab(*cases: Case, middle: MidAccumulation = MIDDLE) -> CursorLab:
    return CursorLab(10, 3, cases, middle)


def test_the_published_figures_pass() -> None:
    assert lab(RIGHT, AHEAD, BEHIND).passed


@pytest.mark.parametrize(
    "case",
    [
        replace(RIGHT, restored_step=9),
        replace(RIGHT, cursor=13, cursor_samples=104),
        replace(RIGHT, verdict="invalid", blamed=(GAP,)),
        replace(RIGHT, twice_batches=(9,)),
        replace(AHEAD, lost_batches=(10, 11)),
        replace(AHEAD, verdict="valid", blamed=()),
        replace(AHEAD, blamed=(replace(GAP, id=4),)),
        replace(AHEAD, next_batch=10),
        replace(BEHIND, twice_batches=()),
        replace(BEHIND, lost_batches=(10,)),
    ],
)
def test_anything_else_does_not(case: Case) -> None:
    assert not lab(case).passed


@pytest.mark.parametrize(
    "middle",
    [
        replace(MIDDLE, restored_step=5),
        replace(MIDDLE, redone_updates=1),
        replace(MIDDLE, redone_by=None),
        replace(MIDDLE, redone_by=(10, 0)),
        replace(MIDDLE, partial_samples=(1, 2, 3, 4)),
    ],
)
def test_partial_work_that_is_not_redone_does_not(middle: MidAccumulation) -> None:
    assert not lab(RIGHT, AHEAD, BEHIND, middle=middle).passed


def test_gaps_and_repeats_are_of_what_was_applied() -> None:
    applied = Applied((), {0: 1, 1: 2, 4: 1, 5: 3}, {})
    assert applied.never() == [2, 3]
    assert applied.repeated() == [1, 5]


class Stream(LocalStream):
    """Hands out a microbatch for each `more.release()`; then, at `broken`, raises."""

    more: threading.Semaphore
    broken: threading.Event

    def iter_batches(self, **settings: Any) -> Iterator[Any]:
        for table in super().iter_batches(**settings):
            self.more.acquire()
            if self.broken.is_set():
                raise OSError("the object store is gone")
            yield table


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[PlannedInput]:
    """Two microbatches a step: the fourth waits for five more, the sixth for the checkpoint of step 2."""
    monkeypatch.setattr(Stream, "more", threading.Semaphore(0), raising=False)
    monkeypatch.setattr(Stream, "broken", threading.Event(), raising=False)
    monkeypatch.setattr(ray.data, "read_datasource", Stream)
    for name, value in {"log": tmp_path, "publish": 2, "at_microbatch": 6, "ahead": 5}.items():
        monkeypatch.setattr(PlannedInput, name, value)
    source = PlannedInput(
        *data_and_plan(write_data(tmp_path / "data")), Share(0, 1, 8, 2), first_step=0, last_step=9, prefetch=5,
        attempt=0, points=NoPoints(),
    )  # fmt: skip
    source.start()
    yield source
    source.close()
    Stream.more.release(100)
    assert source.ended(20)


def in_the_background(call: Callable[[], object]) -> tuple[threading.Thread, list[BaseException]]:
    caught: list[BaseException] = []

    def calling() -> None:
        try:
            call()
        except BaseException as error:
            caught.append(error)

    thread = threading.Thread(target=calling)
    thread.start()
    return thread, caught


def test_the_input_waits_until_the_whole_prefetch_lies_ready(planned: PlannedInput) -> None:
    Stream.more.release(8)
    for _ in range(3):
        planned.next()
    assert not planned.waiting
    thread, caught = in_the_background(planned.next)
    limit = time.monotonic() + 20
    while planned.stats().depth != 4 or not planned.waiting:  # eight made, four taken: one is missing
        assert time.monotonic() < limit
        time.sleep(0.001)
    thread.join(0.05)
    assert thread.is_alive()
    Stream.more.release()
    thread.join(20)
    assert not thread.is_alive()
    assert (planned.stats().depth, planned.waiting, caught) == (5, False, [])


def test_the_input_waits_until_the_checkpoint_is_published(planned: PlannedInput, tmp_path: Path) -> None:
    Stream.more.release(20)
    for _ in range(5):
        planned.next()
    (tmp_path / "1.json").write_bytes(seal({"kind": "publish", "step": 1})[0])
    (tmp_path / "2.json").write_bytes(seal({"kind": "choose", "step": 2})[0])
    thread, caught = in_the_background(planned.next)
    thread.join(0.05)
    assert thread.is_alive()
    assert planned.waiting
    (tmp_path / "new").write_bytes(seal({"kind": "publish", "step": 2})[0])
    (tmp_path / "new").rename(tmp_path / "3.json")
    thread.join(20)
    assert not thread.is_alive()
    assert caught == []


@pytest.mark.parametrize(("released", "taken", "says"), [
    (7, 3, "only 3 of 5 microbatches were prefetched behind step 2 within 0.05 s"),
    (20, 5, "step 2 was not published within 0.05 s"),
])  # fmt: skip
def test_its_patience_ends_with_an_error(
    planned: PlannedInput, monkeypatch: pytest.MonkeyPatch, released: int, taken: int, says: str
) -> None:
    Stream.more.release(released)
    for _ in range(taken):
        planned.next()
    monkeypatch.setattr(cursor_trainer, "PATIENCE_S", 0.05)
    with pytest.raises(WorkloadError, match=says):
        planned.next()


def test_a_broken_stream_is_not_waited_for(planned: PlannedInput) -> None:
    Stream.more.release(4)
    for _ in range(3):
        planned.next()
    thread, caught = in_the_background(planned.next)
    Stream.broken.set()
    Stream.more.release()
    thread.join(20)
    assert (thread.is_alive(), caught) == (False, [])
    with pytest.raises(OSError, match="the object store is gone"):
        planned.next()


def test_the_end_of_the_attempt_is_not_waited_out(planned: PlannedInput) -> None:
    Stream.more.release(20)
    for _ in range(5):
        planned.next()
    thread, _caught = in_the_background(planned.next)
    planned.close()
    thread.join(20)
    assert not thread.is_alive()
