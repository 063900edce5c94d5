"""The witness of invariant 3: what `coverage` found, said with the first wrong step, the first sample, and counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from chaos.audit.coverage import Coverage, Expected, Spot
from chaos.audit.evidence import Evidence, Segment
from chaos.audit.findings import Case, count, listed, microbatches, span
from chaos.audit.plan import Plan
from chaos.audit.witnesses import restored_by_attempt


class Teller:
    """Knows the run, so that a position can be said as epoch, step and sample."""

    def __init__(
        self, evidence: Evidence, segments: Sequence[Segment], expected: Expected, plan: Plan | None
    ) -> None:
        self._evidence, self._segments, self._expected, self._plan = evidence, segments, expected, plan

    def tell(self, coverage: Coverage, case: Case) -> None:
        """Adds every fault to the case, the ones that a reader wants first first."""
        case.wrong += self._repeats(coverage)
        case.wrong += self._gaps(coverage)
        case.wrong += self._samples(coverage)
        case.wrong += self._contents(coverage)
        case.wrong += self._steps(coverage)
        case.wrong += coverage.epoch_faults
        if coverage.uncertain:
            case.unsure.append(
                f"{count(coverage.uncertain, 'position')} cannot be judged without the lost ledger"
            )

    def _repeats(self, coverage: Coverage) -> Iterator[str]:
        repeat = coverage.first_repeat
        if repeat is None:
            return
        spots = repeat.spots
        number = repeat.last - repeat.first + 1
        times = "twice" if len(spots) == 2 else f"{len(spots)} times"
        applied = listed(f"at step {spot.step} by attempt {spot.attempt}" for spot in spots)
        all_ = "" if number == coverage.repeated else f" ({coverage.repeated} in all)"
        yield (
            f"{self._samples_at(repeat.first, repeat.last)} applied {times}{all_}: {applied}"
            f"{self._restores(spot.attempt for spot in spots)}"
        )

    def _gaps(self, coverage: Coverage) -> Iterator[str]:
        if coverage.first_gap is None:
            return
        first, last = coverage.first_gap
        all_ = "" if last - first + 1 == coverage.never else f" ({coverage.never} in all)"
        after = self._after(last)
        text = f"{self._samples_at(first, last)} never applied{all_}{self._whole_epochs(first, last)}"
        if after is not None:
            text += f": attempt {after.attempt} went on with position {after.position} at step {after.step}"
            text += self._restores([after.attempt])
        yield text

    def _samples(self, coverage: Coverage) -> Iterator[str]:
        tally, first, plan = coverage.wrong_sample, coverage.wrong_sample.first, self._plan
        if first is None or plan is None:
            return
        planned = int(plan.sample_ids([first.position])[0])
        epochs = sorted(tally.epochs)
        yield (
            f"the order differs from the plan in epoch {listed(epochs[:3])}: at step {first.step} attempt "
            f"{first.attempt} consumed sample {first.sample_id} at position {first.position}, the plan says "
            f"{planned} "
            f"({count(tally.count, 'sample')} in all){self._other_epoch(first, plan)}"
        )

    def _contents(self, coverage: Coverage) -> Iterator[str]:
        tally, first = coverage.wrong_content, coverage.wrong_content.first
        if first is not None:
            yield (
                f"the content of sample {first.sample_id}, consumed at step {first.step} by attempt "
                f"{first.attempt} "
                f"(position {first.position}), is not that of the dataset's row "
                f"({count(tally.count, 'sample')} in all)"
            )

    def _steps(self, coverage: Coverage) -> Iterator[str]:
        batch = self._expected.global_batch
        for tally, what in (
            (coverage.beyond, f"outside of {self._applied()}"),
            (coverage.wrong_step, "which is not that step's"),
            (coverage.wrong_microbatch, "in another microbatch than the position belongs to"),
            (coverage.outside_segment, "in a ledger segment that does not cover that step and microbatch"),
        ):
            first: Spot | None = tally.first
            if first is not None:
                yield (
                    f"step {first.step} of attempt {first.attempt} consumed position {first.position} "
                    "(sample "
                    f"{first.sample_id}), {what}; step {first.step} has positions "
                    f"{first.step * batch}–{(first.step + 1) * batch - 1} ({count(tally.count, 'row')} in "
                    "all)"
                )

    def _applied(self) -> str:
        """The positions that the lineage has consumed."""
        cursor, partial = self._expected.cursor, self._expected.partial
        if not partial:
            return f"0–{cursor - 1}, which the lineage has applied"
        return f"what the lineage has applied or accumulated (0–{cursor - 1} and {microbatches(partial)} more)"

    def _samples_at(self, first: int, last: int) -> str:
        """`samples at positions 7–9 (ids 4, 1, 8) were`; ids where the plan is known."""
        ids = ""
        if self._plan is not None:
            shown = self._plan.sample_ids(np.arange(first, min(last + 1, first + 3))).tolist()
            more = ", …" if last - first >= 3 else ""
            ids = f" (ids {', '.join(map(str, shown))}{more})"
        if first == last:
            return f"the sample at position {first}{ids} was"
        return f"samples at positions {span(first, last)}{ids} were"

    def _after(self, last: int) -> Spot | None:
        """The row next behind a gap."""
        found: list[tuple[int, Spot]] = []
        for index, segment in enumerate(self._segments):
            place = int(np.searchsorted(segment.position, last + 1))
            if place < len(segment.position):
                step, position = int(segment.step[place]), int(segment.position[place])
                sample = int(segment.sample_id[place])
                found.append((position, Spot(step, position, sample, segment.meta.attempt, index)))
        return min(found)[1] if found else None

    def _whole_epochs(self, first: int, last: int) -> str:
        rows = self._expected.rows
        if not rows:
            return ""
        begin, end = -(-first // rows), (last + 1) // rows
        if begin < end:
            return f", the whole of epoch {span(begin, end - 1)}"
        return f" in epoch {span(first // rows, last // rows)}"

    def _restores(self, attempts: Iterable[int]) -> str:
        """`; attempt 1 restored cursor 1040 beside optimizer step 65`, for each attempt that restored anything."""
        restored = restored_by_attempt(self._evidence)
        told = [
            f"; attempt {attempt} restored cursor {restored[attempt][0].what.cursor} beside optimizer step "
            f"{restored[attempt][0].what.step}"
            for attempt in sorted(set(attempts))
            if attempt in restored and restored[attempt][0].what.name is not None
        ]
        return "".join(told)

    def _other_epoch(self, first: Spot, plan: Plan) -> str:
        """Whether the samples are those of another epoch's order."""
        rows, segment = plan.rows, self._segments[first.segment]
        start = int(np.searchsorted(segment.position, first.position))
        epoch, limit = first.position // rows, (first.position // rows + 1) * rows
        stop = min(int(np.searchsorted(segment.position, limit)), start + 256)
        offsets = segment.position[start:stop] % rows
        for other in dict.fromkeys((0, epoch - 1)):
            if 0 <= other != epoch and np.array_equal(
                plan.sample_ids(offsets + other * rows), segment.sample_id[start:stop]
            ):
                return f"; it is the order of epoch {other}"
        return ""
