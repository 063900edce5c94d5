"""The canonical history: blind to when and where, and to nothing that the run did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from chaos.sweep.canonical import canonical_history, digest_of
from storage.history import History

STEP = {
    "rank": 0, "step": 1, "loss": "0x1p0", "lr": ["0x1p-3"], "gradient_norm": "0x1p1", "ids": "i",
    "state": {"model": "m"}, "samples_seen": 4, "skipped": False,
}  # fmt: skip
KEPT = {name: value for name, value in STEP.items() if name != "rank"}
OTHERS = [{"loss": "0x1p1"}, {"ids": "j"}, {"state": {"model": "n"}}, {"step": 2}, {"attempt": 1}]


def run(folder: Path, train_s: float = 0.1, attempt: int = 0, **change: Any) -> Path:
    history = History.open(folder / "history", "worker", "run")
    history.record("step", attempt, train_s=train_s, **{**STEP, **change})
    history.record("save_written", attempt, rank=0, step=1, duration_s=train_s)
    history.record("interrupted", attempt, rank=0, step=1, phase="reduce")
    history.close()
    return folder


def test_times_are_no_part_of_it(tmp_path: Path) -> None:
    first, second = run(tmp_path / "a"), run(tmp_path / "b", train_s=7.0)
    assert canonical_history(first, 0) == canonical_history(second, 0) == [(0, "step", 0, KEPT)]
    assert digest_of(first, 0) == digest_of(second, 0)


@pytest.mark.parametrize("change", OTHERS)
def test_what_was_done_is(tmp_path: Path, change: dict[str, Any]) -> None:
    assert digest_of(run(tmp_path / "a"), 0) != digest_of(run(tmp_path / "b", **change), 0)


def test_of_the_struck_attempt_only_the_struck_rank_counts(tmp_path: Path) -> None:
    assert canonical_history(run(tmp_path / "a"), 1) == []
    assert len(canonical_history(run(tmp_path / "b", attempt=1), 1)) == 1
