"""Which checkpoint `killpoint export` takes: the newest at the end of a step."""

from __future__ import annotations

from pathlib import Path

import pytest
from simulated_run import Settings, Simulation, fault

from chaos.errors import ExportFailed
from chaos.export import export


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Killed inside update 4; published are steps 3 and 4 and whatever lies between and after them."""
    death = fault(0, 0, "rank", 1, "microbatch.backward", hit=19)
    sim = Simulation(tmp_path / "run", Settings(microbatches=4, global_batch=16, steps=8, save_every=3, keep=99,
                                                save_every_microbatches=2, faults=[death]))  # fmt: skip
    sim.start()
    sim.train(4, microbatches=2)
    sim.kill(death)
    assert [p["name"] for p in sim.branch[-2:]] == ["s00000004-a0000", "s00000004-m0002-a0000"]
    return sim.folder


def test_a_checkpoint_inside_a_step_is_not_offered(run: Path, tmp_path: Path) -> None:
    assert export(run, tmp_path / "newest", weights=True).checkpoint == "s00000004-a0000"
    assert export(run, tmp_path / "named", step=3, weights=True).checkpoint == "s00000003-a0000"


def test_a_step_of_which_only_the_inside_is_there(run: Path, tmp_path: Path) -> None:
    (run / "store" / "manifests" / "s00000004-a0000.json").write_bytes(b"{}")
    done = export(run, tmp_path / "older", weights=True)
    assert done.checkpoint == "s00000003-a0000"
    assert len(done.rejected) == 1
    with pytest.raises(ExportFailed, match="no checkpoint of step 4 verifies"):
        export(run, tmp_path / "named", step=4, weights=True)
