"""One rank's input from any cursor: the plan's samples in order, and never a silent end."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import ray.data
from training_kit import LocalStream, data_and_plan, write_data

from trainers.dataset import Dataset
from trainers.errors import DatasetError, Interrupted
from trainers.pipeline import Pipeline, configure_ray_data
from trainers.plan import Plan
from trainers.points import NoPoints
from trainers.source import Microbatch, Share

DEADLINE_S = 20.0
SHARE = Share(rank=1, ranks=2, global_batch=8, microbatches=2)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Plan]:
    return data_and_plan(write_data(tmp_path_factory.mktemp("pipeline") / "data"))


class Streams:
    """Every stream that was opened instead of Ray Data's; `make` makes the next ones."""

    def __init__(self) -> None:
        self.opened: list[int] = []
        self.make: Any = LocalStream

    def __call__(self, source: Any, *, override_num_blocks: int, concurrency: int) -> Any:
        self.opened.append(override_num_blocks)
        return self.make(source, override_num_blocks=override_num_blocks, concurrency=concurrency)


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    made = Streams()
    monkeypatch.setattr(ray.data, "read_datasource", made)
    return made


@pytest.fixture
def opened() -> Iterator[list[Pipeline]]:
    """Pipelines of the test, closed at its end."""
    made: list[Pipeline] = []
    yield made
    for pipeline in made:
        pipeline.close()


def pipeline(
    data: tuple[Dataset, Plan], first: int, last: int, *, lead: bool, prefetch: int = 2, share: Share = SHARE
) -> Pipeline:
    return Pipeline(
        *data, share, first_step=first, last_step=last, prefetch=prefetch, attempt=1, points=NoPoints(), lead=lead
    )


def expected(data: tuple[Dataset, Plan], first: int, last: int) -> list[tuple[list[int], list[int]]]:
    """Positions and sample ids of each microbatch: two of two rows a step."""
    # Rank 1 has the second half of each step.
    starts = [step * 8 + 4 + 2 * microbatch for step in range(first, last) for microbatch in (0, 1)]
    positions = [np.arange(start, start + 2, dtype=np.int64) for start in starts]
    return [(each.tolist(), data[1].sample_ids(each).tolist()) for each in positions]


def seen(batches: list[Microbatch]) -> list[tuple[list[int], list[int]]]:
    for batch in batches:
        assert batch.columns["number"].tolist() == batch.sample_ids.tolist()
    return [(batch.positions.tolist(), batch.sample_ids.tolist()) for batch in batches]


@pytest.mark.parametrize("first", [0, 5, 1000])
def test_a_restart_reads_its_first_steps_without_ray(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline], first: int
) -> None:
    source = pipeline(data, first, first + 6, lead=True)
    opened.append(source)
    source.start()
    assert seen([source.next() for _ in range(12)]) == expected(data, first, first + 6)
    assert streams.opened == []


@pytest.mark.parametrize(("first", "lead"), [(0, False), (3, False), (3, True)])
def test_the_stream_goes_on_where_the_lead_ends_without_gap_or_repetition(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline], first: int, lead: bool
) -> None:
    source = pipeline(data, first, first + 30, lead=lead)
    opened.append(source)
    source.start()
    assert seen([source.next() for _ in range(60)]) == expected(data, first, first + 30)
    assert streams.opened == [5]  # blocks of 1, 2, 4, 8 and the rest


def test_a_long_run_is_a_chain_of_streams(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainers.source._BLOCK_ROWS", 4)  # one step a block, as if samples were large
    source = pipeline(data, 2, 42, lead=False)
    opened.append(source)
    source.start()
    assert seen([source.next() for _ in range(80)]) == expected(data, 2, 42)
    assert streams.opened == [16, 16, 8]


def test_nothing_is_read_before_the_start(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline]
) -> None:
    opened.append(pipeline(data, 0, 9, lead=False))
    time.sleep(0.02)
    assert streams.opened == []
    assert opened[0].stats().produced == 0


def test_it_runs_ahead_by_the_stated_depth_and_no_further(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline]
) -> None:
    source = pipeline(data, 0, 20, lead=False, prefetch=3)
    opened.append(source)
    source.start()
    for consumed in (0, 1, 7):
        for _ in range(consumed - source.stats().consumed):
            source.next()
        limit = time.monotonic() + DEADLINE_S
        while source.stats().depth < 3 and time.monotonic() < limit:
            time.sleep(0.001)
        time.sleep(0.02)
        stats = source.stats()
        assert (stats.consumed, stats.produced, stats.depth) == (consumed, consumed + 3, 3)
    assert stats.samples_per_s > 0
    assert stats.prepare_s > 0


def test_an_error_of_the_stream_reaches_the_loop(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline]
) -> None:
    """A producer that is gone must not look like a slow one."""

    class Breaking(LocalStream):
        def iter_batches(self, **settings: Any) -> Iterator[Any]:
            yield next(super().iter_batches(**settings))
            raise OSError("the object store is gone")

    streams.make = Breaking
    source = pipeline(data, 0, 9, lead=False)
    opened.append(source)
    source.start()
    source.next()
    with pytest.raises(OSError, match="the object store is gone"):
        source.next()


def test_a_lost_file_reaches_the_loop(tmp_path: Path, streams: Streams, opened: list[Pipeline]) -> None:
    lost = data_and_plan(write_data(tmp_path / "data"))
    for path in (tmp_path / "data").iterdir():
        path.unlink()
    for lead in (False, True):
        source = pipeline(lost, 0, 9, lead=lead)
        opened.append(source)
        source.start()
        with pytest.raises(FileNotFoundError):
            source.next()


def test_a_stream_that_ends_early_is_an_error_not_an_end(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline]
) -> None:
    class Short(LocalStream):
        def iter_batches(self, **settings: Any) -> Iterator[Any]:
            yield from list(super().iter_batches(**settings))[:-1]

    streams.make = Short
    source = pipeline(data, 0, 3, lead=False)
    opened.append(source)
    source.start()
    for _ in range(5):
        source.next()
    with pytest.raises(DatasetError, match="ended before the last step"):
        source.next()


def test_who_waits_for_a_batch_says_so_and_is_released_by_the_end(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline]
) -> None:
    go_on = threading.Event()

    class Slow(LocalStream):
        def iter_batches(self, **settings: Any) -> Iterator[Any]:
            go_on.wait(DEADLINE_S)
            yield from ()

    streams.make = Slow
    source = pipeline(data, 0, 9, lead=False)
    opened.append(source)
    source.start()
    assert not source.waiting
    caught: list[BaseException] = []

    def wait() -> None:
        try:
            source.next()
        except BaseException as error:
            caught.append(error)

    waiter = threading.Thread(target=wait)
    waiter.start()
    limit = time.monotonic() + DEADLINE_S
    while not source.waiting and time.monotonic() < limit:
        time.sleep(0.001)
    assert source.waiting
    source.close()
    waiter.join(DEADLINE_S)
    go_on.set()
    assert [type(error) for error in caught] == [Interrupted]


def test_time_spent_waiting_is_counted(data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline]) -> None:
    class Slow(LocalStream):
        def iter_batches(self, **settings: Any) -> Iterator[Any]:
            time.sleep(0.05)
            yield from super().iter_batches(**settings)

    streams.make = Slow
    source = pipeline(data, 0, 9, lead=False)
    opened.append(source)
    source.start()
    source.next()
    assert 0.04 < source.stats().wait_s < DEADLINE_S
    assert not source.waiting


def test_ray_data_keeps_the_order() -> None:
    configure_ray_data()
    context = ray.data.DataContext.get_current()
    assert context.execution_options.preserve_order
    assert not context.enable_progress_bars


@pytest.mark.parametrize("lead", [True, False])
@pytest.mark.parametrize("first", [(0, 0), (3, 0), (3, 1), (18, 1)])
def test_it_starts_at_any_microbatch_of_a_step(
    data: tuple[Dataset, Plan], streams: Streams, opened: list[Pipeline], first: tuple[int, int], lead: bool
) -> None:
    """What the restored partial gradients hold already is never delivered again."""
    source = Pipeline(*data, SHARE, first_step=first[0], first_microbatch=first[1], last_step=20, prefetch=2, attempt=1,
                      points=NoPoints(), lead=lead)  # fmt: skip
    opened.append(source)
    source.start()
    assert source.start_at == first
    remaining = expected(data, first[0], 20)[first[1] :]
    assert seen([source.next() for _ in remaining]) == remaining
