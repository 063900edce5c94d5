"""The measurement beside the model: what `lab pipeline --measure` runs, and where the two contradict each other.

What is compared is the median over batches of the time from one end of training to the next, and of the wait before
training. Not compared are the first batch, whose wait is Ray Data's start, and the stream's end. A queue of depth N
of the real pipeline is not all that lies ahead of training: Ray Data's iterator hands a batch out when N more are
there, and Ray Data itself prepares on until its own limit of memory. So the model beside it has that window, and no
bound behind it; what a queue of N alone would let in flight is told beside what was in flight.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

from chaos.errors import ChaosError
from chaos.labs.computing import units_for, work
from chaos.labs.pipeline_model import Timeline, preparation_times_us, schedule

if TYPE_CHECKING:
    from chaos.labs.pipeline_ray import InputBench, Moment

_STREAM_BEHIND = 4  # batches beside the deepest queue
_CONTROL_BATCHES = 4


class StageTooShort(ChaosError):
    """The stated preparation is shorter than what reading really takes here."""


@dataclass(frozen=True)
class Stated:
    """What is to be measured. Times of each batch's stages in µs, as long as they shall really take; there are more of
    them than the `batches` that are measured, since the stream goes on behind those."""

    batches: int
    prepare_us: tuple[int, ...]
    train_us: tuple[int, ...]
    depths: tuple[int, ...]
    workers: tuple[int, ...]
    tolerance: float

    @classmethod
    def of(
        cls, prepare_us: int, jitter_us: int, seed: int, train_us: int, batches: int, *, depths: tuple[int, ...],
        workers: tuple[int, ...], tolerance: float,
    ) -> Stated:
        """At least 2 batches. Raises ValueError for a jitter that is not from 0 to `prepare_us`."""
        stream = batches + max(depths) + _STREAM_BEHIND
        prepared = preparation_times_us(prepare_us, jitter_us, stream, seed)
        return cls(batches, tuple(prepared), (train_us,) * stream, depths, workers, tolerance)

    def model(self, depth: int, workers: int = 1, *, bounded: bool = False) -> Timeline:
        """The measured batches as the model has them; `bounded` by the depth alone, or as the real stream is."""
        ahead, behind = (depth, 0) if bounded or depth == 0 else (len(self.prepare_us), depth)
        whole = schedule(self.prepare_us, self.train_us, ahead, workers, behind)
        return Timeline(whole.passages[: self.batches])


@dataclass(frozen=True)
class Steady:
    """The steady state of one run, times in ms: medians over its batches after the first."""

    interval_ms: float
    wait_ms: float
    most_in_flight: int


@dataclass(frozen=True)
class Depth:
    """One depth, measured beside the model. first_batch_ms: from the first preparation to the first batch's training.

    bounded_in_flight: the most that a queue of this depth alone would have in flight. most_queued: what lay in the
    pipeline's own queue when a batch was taken, the most.
    """

    depth: int
    bounded_in_flight: int
    model: Steady
    measured: Steady
    first_batch_ms: float
    most_queued: int
    most_samples_in_flight: int
    most_bytes_in_flight: int
    agrees: bool
    records: tuple[dict[str, float | int], ...]


@dataclass(frozen=True)
class Workers:
    """One number of data workers, all stages computing. within_bound: not faster than training alone."""

    workers: int
    model_interval_ms: float
    interval_ms: float
    train_ms: float
    wait_ms: float
    within_bound: bool


@dataclass(frozen=True)
class Control:
    """The control run and the parts of a real preparation, in ms a batch.

    cached_*: on input that lies prepared in memory. ray_ms: what the stream costs beyond its three parts.
    """

    cached_wait_ms: float
    cached_train_ms: float
    reading_ms: float
    transforming_ms: float
    transferring_ms: float
    stream_ms: float
    ray_ms: float


@dataclass(frozen=True)
class Measurement:
    """Everything measured. passed: no depth and no number of workers contradicts the model."""

    batches: int
    batch_samples: int
    batch_bytes: int
    tolerance: float
    by_depth: tuple[Depth, ...]
    by_workers: tuple[Workers, ...]
    control: Control

    @property
    def passed(self) -> bool:
        return all(depth.agrees for depth in self.by_depth) and all(each.within_bound for each in self.by_workers)

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "passed": self.passed}


def measure(stated: Stated, notify: Callable[[str], None]) -> Measurement:
    """Runs every depth, then every number of workers, then the control. Ray must be there. Raises StageTooShort."""
    from chaos.labs.pipeline_ray import InputBench

    with tempfile.TemporaryDirectory(prefix="killpoint-lab-", ignore_cleanup_errors=True) as scratch:
        bench = InputBench(Path(scratch))
        notify("starting data workers")
        bench.warm_up(max(stated.workers))
        notify("control: each part of a preparation, and training on cached input")
        control, train_units = _control(bench, stated)
        real_ms = {False: control.reading_ms + control.transforming_ms, True: control.stream_ms}
        by_depth = []
        for depth in stated.depths:
            notify(f"depth {depth}")
            by_depth.append(_depth(bench, stated, waits_s(stated, real_ms[depth > 0]), depth))
        by_workers = []
        for workers in stated.workers:
            notify(f"{workers} data worker{'s' * (workers > 1)}, computing")
            by_workers.append(_workers(bench, stated, train_units, control, workers))
        return Measurement(
            stated.batches, bench.batch_samples, bench.batch_bytes, stated.tolerance, tuple(by_depth),
            tuple(by_workers), control,
        )


def _control(bench: InputBench, stated: Stated) -> tuple[Control, int]:
    """The control, and how many units of work one batch's training is."""
    costs = bench.costs(_CONTROL_BATCHES)
    units = units_for(median(stated.train_us) / 1e6)
    moments = bench.cached(min(stated.batches, _CONTROL_BATCHES), partial(work, units))
    control = Control(
        cached_wait_ms=_ms(median(m.taken_s - m.asked_s for m in moments)),
        cached_train_ms=_ms(median(m.done_s - m.taken_s for m in moments)),
        reading_ms=_ms(costs.reading_s), transforming_ms=_ms(costs.transforming_s),
        transferring_ms=_ms(costs.transferring_s), stream_ms=_ms(costs.stream_s),
        ray_ms=_ms(costs.stream_s - costs.reading_s - costs.transforming_s - costs.transferring_s),
    )  # fmt: skip
    return control, units


def waits_s(stated: Stated, real_ms: float) -> list[float]:
    """What each preparation has to wait so that with all that is real in it, it takes the stated time."""
    shortest_ms = min(stated.prepare_us) / 1e3
    if shortest_ms < real_ms:
        raise StageTooShort(
            f"the stated preparation of {shortest_ms:.1f} ms is shorter than what a batch really takes to prepare "
            f"here, {real_ms:.1f} ms: measure with a greater --stretch"
        )
    return [(time_us / 1e3 - real_ms) / 1e3 for time_us in stated.prepare_us]


def _depth(bench: InputBench, stated: Stated, waiting_s: Sequence[float], depth: int) -> Depth:
    trained = iter(stated.train_us)
    moments = bench.streamed(
        stated.batches, waiting_s, lambda: time.sleep(next(trained) / 1e6), depth=depth
    )
    model = _of_model(stated.model(depth))
    measured = _of_moments(moments)
    in_flight = max(moment.in_flight for moment in moments)
    return Depth(
        depth, stated.model(depth, bounded=True).most_in_flight, model, measured,
        _ms(moments[0].taken_s - moments[0].prepare_start_s),
        max(moment.queued for moment in moments), in_flight * bench.batch_samples, in_flight * bench.batch_bytes,
        agree(measured, model, stated.tolerance),
        tuple(_record(batch, moment, moments[0].prepare_start_s) for batch, moment in enumerate(moments)),
    )


def agree(measured: Steady, model: Steady, tolerance: float) -> bool:
    """Whether interval and wait are both within `tolerance` times the model's interval of the model's."""
    allowed_ms = tolerance * model.interval_ms
    interval = abs(measured.interval_ms - model.interval_ms) <= allowed_ms
    return interval and abs(measured.wait_ms - model.wait_ms) <= allowed_ms


def _workers(bench: InputBench, stated: Stated, train_units: int, control: Control, workers: int) -> Workers:
    """Both stages compute, on the cores that there are: training a fixed amount, each preparation what its stated time
    leaves beside its real reading."""
    prepare_us = median(stated.prepare_us) - control.stream_ms * 1e3
    prepare_units = round(train_units * prepare_us / median(stated.train_us))
    depth = max(stated.depths)
    moments = bench.streamed(
        stated.batches, [0.0] * len(stated.prepare_us), partial(work, train_units), depth=depth, workers=workers,
        units=prepare_units,
    )
    model = stated.model(depth, workers)
    found = _of_moments(moments)
    return Workers(
        workers, _of_model(model).interval_ms, found.interval_ms,
        _ms(median(m.done_s - m.taken_s for m in moments)), found.wait_ms,
        found.interval_ms >= control.cached_train_ms * (1 - stated.tolerance),
    )


def _of_model(timeline: Timeline) -> Steady:
    passages = timeline.passages
    ends = [passage.train_end_us for passage in passages]
    between = [after - before for before, after in pairwise(ends)]
    return Steady(median(between) / 1e3, median(p.wait_us for p in passages[1:]) / 1e3, timeline.most_in_flight)


def _of_moments(moments: Sequence[Moment]) -> Steady:
    between = [after.done_s - before.done_s for before, after in pairwise(moments)]
    waits = [moment.taken_s - moment.asked_s for moment in moments[1:]]
    return Steady(_ms(median(between)), _ms(median(waits)), max(moment.in_flight for moment in moments))


def _record(batch: int, moment: Moment, start_s: float) -> dict[str, float | int]:
    return {
        "batch": batch,
        "prepare_start_ms": _ms(moment.prepare_start_s - start_s),
        "train_start_ms": _ms(moment.taken_s - start_s),
        "train_end_ms": _ms(moment.done_s - start_s),
        "wait_ms": _ms(moment.taken_s - moment.asked_s),
        "queued": moment.queued,
        "in_flight": moment.in_flight,
    }


def _ms(time_s: float) -> float:
    return round(time_s * 1e3, 3)
