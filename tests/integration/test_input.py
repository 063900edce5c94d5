"""The real input on Ray Data: how a stream is let go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ray.data._internal.execution.streaming_executor import StreamingExecutor
from training_kit import data_and_plan, write_data

from trainers.pipeline import Pipeline, configure_ray_data
from trainers.points import NoPoints
from trainers.source import Share


@pytest.mark.usefixtures("cluster")
def test_a_stream_that_is_closed_midway_kills_no_task(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray ends the process that has a task killed which is just done."""
    asked: list[tuple[bool, bool]] = []
    shutdown = StreamingExecutor.shutdown

    def noted(self: Any, force: bool, exception: Exception | None = None) -> None:
        asked.append((force, self._shutdown))
        shutdown(self, force, exception)

    monkeypatch.setattr(StreamingExecutor, "shutdown", noted)
    configure_ray_data()
    data = data_and_plan(write_data(tmp_path / "data"))
    share = Share(rank=1, ranks=2, global_batch=8, microbatches=2)
    source = Pipeline(*data, share, first_step=0, last_step=20, prefetch=2, attempt=1, points=NoPoints(), lead=False)
    source.start()
    source.next()
    source.close()
    assert source.ended(20.0)
    in_force = [force for force, over in asked if not over]
    assert in_force == [False]
    assert (True, True) in asked  # Ray Data asks for it afterwards, when nothing is left to kill
