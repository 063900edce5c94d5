"""A run folder is read as what its processes recorded, and one that says too little is refused."""

from __future__ import annotations

import json
from pathlib import Path

import audit_files as files
import cost_kit as kit
import pytest
from cost_kit import Kill, Simulated, written

from chaos.cost.measure import costs_of, measure
from chaos.cost.read import read_run
from storage.errors import HistoryBroken

WHOLE = Simulated(every=5, steps=12).run([Kill(8, 2), Kill(9, 4)])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return written(WHOLE, tmp_path / "run")


def test_costs_on_disk_are_those_of_what_was_recorded(folder: Path) -> None:
    assert measure(folder) == costs_of(WHOLE)
    assert read_run(folder).strikes == WHOLE.strikes


def test_what_costs_are_not_measured_from_is_passed_over(folder: Path) -> None:
    launcher = files.Recorder(folder / "history", "launcher", 7, 1, "r", 1)
    launcher.record("spawned", None, 2, pid=1, start_ticks=1)
    path = folder / "history" / kit.COMMITTER
    files.rechain(path, [*files.bodies(path), {**files.bodies(path)[-1], "event": "retired", "names": []}])
    receipt = json.loads((folder / "history/receipts/f0.json").read_bytes())["body"]
    damage = {**receipt, "fault": "f8", "kind": "damage", "path": "store/shards/x"}
    (folder / "history/receipts/f8.json").write_bytes(files.seal(damage)[0])
    (folder / "history/receipts/f9.json").write_bytes(b"no receipt")
    assert measure(folder) == costs_of(WHOLE)
    assert read_run(folder).strikes == WHOLE.strikes


def test_a_run_of_an_earlier_release_lacks_what_costs_are_measured_from(folder: Path) -> None:
    path = folder / "history" / "worker-h-100-1.jsonl"
    bodies = files.bodies(path)
    at = next(n for n, body in enumerate(bodies) if body["event"] == "step")
    del bodies[at]["wait_s"]
    files.rechain(path, bodies)
    with pytest.raises(HistoryBroken, match=rf"line {at + 1}.*event step lacks wait_s, which its costs are measured"):
        measure(folder)
