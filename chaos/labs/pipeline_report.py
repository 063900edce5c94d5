"""What `lab pipeline` shows on a terminal. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from chaos.labs.pipeline_answer import Answer
from chaos.labs.pipeline_picture import ms, timeline_text
from chaos.labs.tables import STYLES
from chaos.labs.tables import table as _table

if TYPE_CHECKING:
    from chaos.labs.pipeline_measure import Measurement

_MOST_ROWS = 40
_MIB = 1 << 20


def render_model(answer: Answer, columns: int) -> Iterator[RenderableType]:
    """Totals, timeline, one row a batch, and what other depths give."""
    asked, timeline = answer.settings, answer.timeline
    steady = "" if timeline.interval_us is None else f" · steady state {ms(timeline.interval_us)} ms a batch"
    yield Text(
        f"{asked.batches} batches, preparation {ms(asked.prepare_us)} ms"
        f"{f' ± {ms(asked.jitter_us)} ms, seed {asked.seed},' if asked.jitter_us else ''} and training "
        f"{ms(asked.train_us)} ms: serial {ms(answer.serial.total_us)} ms · with a queue of depth {asked.depth} "
        f"{ms(timeline.total_us)} ms{steady}"
    )
    yield timeline_text(timeline, columns)
    batches = _table("Batches, times in ms", "batch", "prepared", "trained", "wait", "ready behind", "in flight")
    for p in timeline.passages[:_MOST_ROWS]:
        batches.add_row(
            str(p.batch), f"{ms(p.prepare_start_us)}–{ms(p.prepare_end_us)}",
            f"{ms(p.train_start_us)}–{ms(p.train_end_us)}", ms(p.wait_us), str(p.ready), str(p.in_flight),
        )  # fmt: skip
    yield batches
    if len(timeline.passages) > _MOST_ROWS:
        yield Text(f"… {len(timeline.passages) - _MOST_ROWS} more batches, all of them with --json")
    depths = _table("By depth, times in ms", "depth", "total", "waited between batches", "most in flight")
    for depth, each in answer.by_depth:
        depths.add_row(str(depth), ms(each.total_us), ms(each.waited_us), str(each.most_in_flight))
    yield depths
    yield Text(_lesson(answer))


def _lesson(answer: Answer) -> str:
    """What the table of depths shows, in a sentence or two."""
    deepest_us = answer.by_depth[-1][1].total_us
    enough = next(depth for depth, each in answer.by_depth if each.total_us == deepest_us)
    over_us = deepest_us - answer.slower_stage_us
    bound = f"{ms(answer.slower_stage_us)} ms is what the slower stage needs"
    end = "no depth beats it" if not over_us else f"no depth comes closer to it than {ms(over_us)} ms"
    absorbed = "jitter" if answer.settings.jitter_us else "nothing here, without jitter"
    return f"{bound}; {end}. From depth {enough} on a deeper queue changes nothing: what depth absorbs is {absorbed}."


def render_measurement(measured: Measurement, stretch: float) -> Iterator[RenderableType]:
    """Every depth and every number of data workers beside the model, and the control run."""
    yield Text(
        f"\nMeasured on Ray Data: {measured.batches} batches of {measured.batch_samples} samples "
        f"({measured.batch_bytes / _MIB:.0f} MiB), stated times stretched by {stretch:g}. A preparation reads Parquet "
        "and gathers the plan's rows for real; the rest of its stated time, and all of a training's, is a wait."
    )
    yield _by_depth(measured)
    yield Text(
        "The stream hands out a batch when as many as its depth lie behind it, and Ray Data prepares on up to its own "
        "limit of memory: a queue's depth bounds the queue, not what is in flight."
    )
    yield _by_workers(measured)
    yield Text(
        "Here both stages compute, a fixed amount each. Where training is the slower stage more data workers take "
        "cores from it and gain nothing: a training alone, on cached input, took "
        f"{measured.control.cached_train_ms:.1f} ms, and no interval can be below that."
    )
    yield _control(measured)
    yield Text(
        f"measurement and model {'agree' if measured.passed else 'contradict each other'} "
        f"(tolerance {measured.tolerance:g} of the model's interval)",
        style=STYLES["valid" if measured.passed else "invalid"],
    )


def _by_depth(measured: Measurement) -> Table:
    table = _table(
        "By depth, times in ms", "depth", "interval", "model", "wait", "model", "first batch", "most queued",
        "most in flight", "queue alone", "samples", "MiB", "",
    )  # fmt: skip
    for each in measured.by_depth:
        found, model = each.measured, each.model
        table.add_row(
            str(each.depth), f"{found.interval_ms:.1f}", f"{model.interval_ms:.1f}", f"{found.wait_ms:.1f}",
            f"{model.wait_ms:.1f}", f"{each.first_batch_ms:.1f}", str(each.most_queued), str(found.most_in_flight),
            str(each.bounded_in_flight), str(each.most_samples_in_flight),
            f"{each.most_bytes_in_flight / _MIB:.0f}", _agrees(each.agrees, "agrees", "contradicts"),
        )  # fmt: skip
    return table


def _by_workers(measured: Measurement) -> Table:
    table = _table("By data workers, times in ms", "workers", "interval", "model", "training", "wait", "")
    for each in measured.by_workers:
        table.add_row(
            str(each.workers), f"{each.interval_ms:.1f}", f"{each.model_interval_ms:.1f}", f"{each.train_ms:.1f}",
            f"{each.wait_ms:.1f}", _agrees(each.within_bound, "within the bound", "faster than training alone"),
        )  # fmt: skip
    return table


def _control(measured: Measurement) -> Table:
    control = measured.control
    table = _table("Control: what a batch costs without any stated time, in ms", "part", "a batch", "what it is")
    for name, time_ms, what in (
        ("reading", control.reading_ms, "Parquet row groups into memory, from the page cache"),
        ("transforming", control.transforming_ms, "gathering the plan's rows"),
        ("transferring", control.transferring_ms, "from Ray's object store, where the batch lies prepared"),
        ("Ray Data itself", control.ray_ms, "what the stream takes beyond these three"),
        ("the stream", control.stream_ms, "from batch to batch with nothing trained"),
        ("wait on cached input", control.cached_wait_ms, "all batches prepared in memory: the input is not the limit"),
    ):
        table.add_row(name, f"{time_ms:.2f}", what)
    return table


def _agrees(yes: bool, right: str, wrong: str) -> Text:
    return Text(right, style=STYLES["valid"]) if yes else Text(wrong, style=STYLES["invalid"])
