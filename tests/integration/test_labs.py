"""The labs that need Ray: the real input pipeline beside its model, and cursors of runs that were really killed."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.errors import OutputExists
from chaos.labs.cursor_cases import run_lab
from chaos.labs.pipeline_measure import StageTooShort, Stated, measure


def test_the_real_pipeline_is_measured_beside_the_model(cluster: str) -> None:
    told: list[str] = []
    stretch = 1
    try:
        measured = measure(_stated(stretch), told.append)
    except StageTooShort:  # where others use the processors too: the lab itself says to measure with longer stages
        stretch, told = 4, []
        measured = measure(_stated(stretch), told.append)
    serial, pipelined = measured.by_depth
    assert measured.passed, measured.to_json()
    assert serial.measured.wait_ms > 2 * pipelined.measured.wait_ms  # the queue hides the preparation
    assert pipelined.measured.interval_ms >= 140 * stretch  # and does not beat training
    for depth in measured.by_depth:
        assert [record["batch"] for record in depth.records] == [0, 1, 2, 3]
        assert depth.most_bytes_in_flight == depth.measured.most_in_flight * measured.batch_bytes
    assert serial.measured.most_in_flight == 1 < pipelined.measured.most_in_flight
    control = measured.control
    assert control.cached_wait_ms < control.transferring_ms < control.stream_ms
    assert 0 < control.reading_ms < control.stream_ms
    assert len(told) == 5


def _stated(stretch: int) -> Stated:
    return Stated.of(100_000 * stretch, 0, 7, 140_000 * stretch, 4, depths=(0, 2), workers=(1,), tolerance=0.4)


def test_the_cursor_of_a_killed_run(cluster: str, tmp_path: Path) -> None:
    lab = run_lab(tmp_path / "lab", 7, lambda case: lambda event: None)
    assert lab.passed, lab.to_json()
    assert lab.prefetched == 3
    right, ahead, behind = lab.cases
    ids = {update.batches[0]: update.sample_ids for update in right.records}
    assert ahead.lost_samples == ids[10] + ids[11] + ids[12]
    assert behind.twice_samples == ids[8] + ids[9]
    assert f"positions 80–103 (ids {ids[10][0]}, {ids[10][1]}, " in witness(ahead)
    assert "attempt 1 went on with position 104 at step 10" in witness(ahead)
    assert f"positions 64–71 (ids {ids[8][0]}, {ids[8][1]}, " in witness(behind)
    assert "were applied twice (16 in all): at step 8 by attempt 0 and at step 10 by attempt 1" in witness(behind)
    assert lab.mid_accumulation.partial_samples == ids[10][:6]
    with pytest.raises(OutputExists):
        run_lab(tmp_path / "lab", 7, lambda case: lambda event: None)


def witness(case) -> str:  # type: ignore[no-untyped-def]
    return next(each.witness for each in case.blamed if each.id == 3)
