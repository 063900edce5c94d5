"""Processes that were given up and wake up, supervisors that die, and two that resume at once (invariant 6)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from run_kit import TINY, events, explain, kill

from trainers.events import Chosen, DeathDetected, Event

KILLPOINT = [str(Path(sys.executable).parent / "killpoint")]


class WakesTheStopped:
    """Sends SIGCONT to every stopped process as soon as the next attempt has chosen what it starts from."""

    def __init__(self) -> None:
        self.stopped: list[int] = []
        self.woken: list[int] = []

    def __call__(self, event: Event) -> None:
        if isinstance(event, DeathDetected) and event.how == "stopped":
            self.stopped.append(event.pid)
        if isinstance(event, Chosen) and event.attempt > 0:
            for pid in self.stopped:
                os.kill(pid, signal.SIGCONT)
            self.woken, self.stopped = self.stopped, []


def test_a_committer_that_wakes_up_before_its_publication_publishes_nothing(run) -> None:  # type: ignore[no-untyped-def]
    wake = WakesTheStopped()
    outcome = run(
        kill("publish.before", 2, role="committer", kind="hang"), notify=wake, kill_suspects=False, steps=40
    )
    assert len(wake.woken) == 1
    assert outcome.verdict["verdict"] == "valid", explain(outcome)
    assert [e["name"] for e in events(outcome.folder, "committer", "fenced_off")] == ["s00000006-a0000"]
    published = [e["name"] for e in events(outcome.folder, "committer", "published")]
    assert "s00000006-a0000" not in published


def test_a_whole_group_that_wakes_up_and_trains_on_changes_nothing(run) -> None:  # type: ignore[no-untyped-def]
    wake = WakesTheStopped()
    outcome = run(
        kill("microbatch.forward", 15, rank=0, kind="hang"), notify=wake, kill_suspects=False, standbys=2,
        survivor_deadline_s=0.5, steps=60,
    )
    assert len(wake.woken) == 1
    assert outcome.verdict["verdict"] == "valid", explain(outcome)


def _experiment(folder: Path, **settings: Any) -> Path:
    strike = {"kind": "sigkill", "at": {"attempt": 0, "role": "supervisor", "after_s": 1.0}}
    path = folder / "experiment.yaml"
    path.write_text(yaml.safe_dump({"run": {**TINY, **settings}, "faults": [strike]}))
    return path


def _command(cluster: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*KILLPOINT, "run", *arguments, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "RAY_ADDRESS": cluster},
    )


@pytest.fixture
def orphaned(cluster: str, tmp_path: Path) -> Path:
    """A run whose supervisor was killed one second into training, with the ranks still training."""
    folder = tmp_path / "run"
    experiment = _experiment(tmp_path, steps=300, save_every=25, standbys=0)
    process = _command(cluster, str(experiment), "--output", str(folder))
    _out, err = process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL, err
    return folder


def test_a_killed_supervisor_is_taken_up_from_disk_by_exactly_one_of_two_that_resume_at_once(
    cluster: str, orphaned: Path
) -> None:
    both = [_command(cluster, "--resume", str(orphaned)) for _ in range(2)]
    ends = [(process, *process.communicate(timeout=150)) for process in both]
    codes = sorted(process.returncode for process, _out, _err in ends)
    assert codes == [0, 2], [err[-2000:] for _process, _out, err in ends]
    verdict = json.loads((orphaned / "verdict.json").read_text())
    assert verdict["verdict"] == "valid", verdict["invariants"]
    ended = {e["pid"] for e in events(orphaned, "supervisor", "killing") if "earlier supervisor" in e["why"]}
    assert len(ended) >= 3  # two ranks and the committer outlived their supervisor


def test_ctrl_c_leaves_nothing_behind_and_the_run_can_go_on(cluster: str, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    experiment = tmp_path / "experiment.yaml"
    experiment.write_text(yaml.safe_dump({"run": {**TINY, "steps": 3000, "save_every": 25, "standbys": 0}}))
    process = _command(cluster, str(experiment), "--output", str(folder))
    limit = time.monotonic() + 90
    while not list(folder.glob("store/log/00000003.json")):
        assert time.monotonic() < limit
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, _err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert json.loads(out)["verdict"] == "unknown"
    for event in events(folder, "supervisor", "process"):
        assert not Path(f"/proc/{event['pid']}").exists()
