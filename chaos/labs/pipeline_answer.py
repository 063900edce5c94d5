"""What the model of `lab pipeline` answers: one timeline, and what other depths would give, as JSON too. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from chaos.labs.pipeline_model import Timeline, preparation_times_us, schedule, slower_stage_us

_DEPTHS = (0, 1, 2, 3, 4, 8)


@dataclass(frozen=True)
class Settings:
    """What was asked for; times in µs."""

    prepare_us: int
    train_us: int
    batches: int
    depth: int
    jitter_us: int
    seed: int


@dataclass(frozen=True)
class Answer:
    """The model's answer: the timeline at the asked depth, and what other depths would give."""

    settings: Settings
    timeline: Timeline
    by_depth: tuple[tuple[int, Timeline], ...]
    slower_stage_us: int

    @property
    def serial(self) -> Timeline:
        return self.by_depth[0][1]

    def to_json(self) -> dict[str, Any]:
        """Times in ms, exact: whole numbers where they are whole."""
        asked, timeline = self.settings, self.timeline
        return {
            "prepare_ms": _ms(asked.prepare_us), "train_ms": _ms(asked.train_us), "batches": asked.batches,
            "depth": asked.depth, "jitter_ms": _ms(asked.jitter_us), "seed": asked.seed,
            "serial_ms": _ms(self.serial.total_us), "total_ms": _ms(timeline.total_us),
            "steady_state_ms": None if timeline.interval_us is None else _ms(timeline.interval_us),
            "slower_stage_ms": _ms(self.slower_stage_us),
            "by_depth": [
                {
                    "depth": depth, "total_ms": _ms(each.total_us), "waited_ms": _ms(each.waited_us),
                    "most_in_flight": each.most_in_flight,
                }
                for depth, each in self.by_depth
            ],
            "records": [
                {
                    "batch": p.batch, "prepare_start_ms": _ms(p.prepare_start_us),
                    "prepare_end_ms": _ms(p.prepare_end_us), "train_start_ms": _ms(p.train_start_us),
                    "train_end_ms": _ms(p.train_end_us), "wait_ms": _ms(p.wait_us), "ready": p.ready,
                    "in_flight": p.in_flight,
                }
                for p in timeline.passages
            ],
        }  # fmt: skip


def answer(settings: Settings) -> Answer:
    """Runs the model at the asked depth and at others. Raises ValueError for a jitter above the preparation time."""
    prepare_us = preparation_times_us(settings.prepare_us, settings.jitter_us, settings.batches, settings.seed)
    train_us = [settings.train_us] * settings.batches
    depths = sorted({*_DEPTHS, settings.depth, settings.batches})
    return Answer(
        settings,
        schedule(prepare_us, train_us, settings.depth),
        tuple((depth, schedule(prepare_us, train_us, depth)) for depth in depths),
        slower_stage_us(prepare_us, train_us),
    )


def _ms(time_us: int | Fraction) -> int | float:
    exact = Fraction(time_us, 1000)
    return exact.numerator if exact.denominator == 1 else float(exact)
