"""What is looked at before a run goes on: that it still is the same one, and which faults are out of reach."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import chaos_kit as fakes
import numpy as np
import pytest

from chaos.errors import RunChanged
from chaos.experiment import Experiment, parse_experiment
from chaos.receipts import receipt_for, write_receipt
from chaos.resuming import out_of_reach, recorded_workload
from chaos.run import find_resumable, resume_experiment
from chaos.runfacts import placed_workload, run_facts
from chaos.runfolder import create
from storage.history import History
from storage.process import current_process
from trainers.dataset import open_dataset, write_shards
from trainers.events import Log
from trainers.spec import code_digest

TEXT = """\
run: {workload: "mine.py:build", ranks: 2, global_batch: 16, microbatches: 2, steps: 10, save_every: 4, twin: false}
faults:
  - at: {attempt: 0, rank: 1, point: step.end, hit: 4}
  - at: {attempt: 1, rank: 1, point: step.end, hit: 4}
  - at: {attempt: 2, rank: 1, point: step.end, hit: 4}
  - at: {role: standby, point: standby.warm}
"""


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    (tmp_path / "mine.py").write_text("import sibling\ndef build(config): ...\n")
    (tmp_path / "sibling.py").write_text("width = 1\n")
    write_shards(tmp_path / "data", {"x": np.arange(8, dtype=np.int64)}, files=1, group_rows=4)
    return parse_experiment(TEXT, tmp_path / "e.yaml")


@pytest.fixture
def folder(experiment: Experiment, tmp_path: Path) -> Path:
    """A run in its second attempt, whose supervisor said no last word."""
    folder, files = tmp_path / "run", [tmp_path / "mine.py", tmp_path / "sibling.py"]
    create(folder, experiment)
    supervisor = os.fork()
    if supervisor:
        os.waitpid(supervisor, 0)
        return folder
    history = History.open(folder / "history", "supervisor", "run-1")
    history.record("run", **run_facts(experiment, "run-1", placed_workload(experiment)))
    data = open_dataset(tmp_path / "data")
    history.record(
        "dataset", dataset={"path": data.folder, "fingerprint": data.fingerprint, "rows": data.rows}, plan={},
        code={"digest": code_digest(files), "files": [str(file) for file in files]},
    )  # fmt: skip
    for attempt in (0, 1):
        history.record("fenced", attempt, seq=attempt)
    os._exit(0)


def contents(folder: Path) -> dict[str, Any]:
    return {str(p): (p.stat().st_mtime_ns, p.read_bytes()) for p in folder.rglob("*") if p.is_file()}


def test_what_is_as_it_was_goes_on(folder: Path) -> None:
    found = find_resumable(folder)
    assert found.recorded.attempt == 1


@pytest.mark.parametrize(("file", "words"), [
    ("mine.py", r"the source was changed since the run began .*mine\.py.*sibling\.py"),
    ("sibling.py", "the source was changed since the run began"),
    ("data", "the dataset in .*data was changed since the run began"),
])  # fmt: skip
def test_what_has_changed_is_refused_and_nothing_is_touched(
    folder: Path, tmp_path: Path, file: str, words: str
) -> None:
    if file == "data":
        (shard,) = (tmp_path / "data").iterdir()
        shard.unlink()
        write_shards(tmp_path / "other", {"x": np.arange(1, 9, dtype=np.int64)}, files=1, group_rows=4)
        next((tmp_path / "other").iterdir()).rename(shard)
    else:
        (tmp_path / file).write_text((tmp_path / file).read_text() + "# changed\n")
    before = contents(folder)
    with pytest.raises(RunChanged, match=words):
        find_resumable(folder)
    assert contents(folder) == before


@pytest.mark.parametrize(
    ("named", "recorded", "same"),
    [
        ("tiny", "tiny", True),
        ("tiny", "/elsewhere/evil.py:build", False),
        ("tiny", "bytelm", False),
        ("a.b:build", "a.b:build", True),
        ("a.b:build", "a.c:build", False),
        ("mine.py:build", "/some/where/mine.py:build", True),
        ("mine.py:build", "/some/where/evil.py:build", False),
        ("mine.py:build", "/some/where/not-mine.py:build", False),
        ("mine.py:build", "/some/where/mine.py:other", False),
        ("mine.py:build", "mine.py:build", False),
        ("mine.py:build", "tiny", False),
        ("below/mine.py:build", "/some/below/mine.py:build", True),
        ("below/mine.py:build", "/some/mine.py:build", False),
        ("../mine.py:build", "/some/where/../mine.py:build", True),
        ("/abs/mine.py:build", "/abs/mine.py:build", True),
        ("/abs/mine.py:build", "/other/abs/mine.py:build", False),
    ],
)
def test_the_history_names_the_experiments_workload(named: str, recorded: str, same: bool) -> None:
    experiment = parse_experiment(TEXT.replace("mine.py:build", named))
    if same:
        assert recorded_workload(experiment, recorded) == recorded
    else:
        with pytest.raises(RunChanged, match="names the workload"):
            recorded_workload(experiment, recorded)


def test_a_workload_that_only_the_history_names_is_not_imported(experiment: Experiment, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    create(folder, experiment)
    history = History.open(folder / "history", "supervisor", "run-1")
    history.record("run", **run_facts(experiment, "run-1", f"{tmp_path}/evil.py:build"))
    history.close()
    words = r"experiment\.yaml: names the workload mine.py:build, the run's history .*evil\.py"
    with pytest.raises(RunChanged, match=words):
        find_resumable(folder)


def test_a_source_that_is_gone_is_named(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "sibling.py").unlink()
    with pytest.raises(RunChanged, match=r"the workload's .*sibling\.py is gone"):
        find_resumable(folder)


def test_a_dataset_that_is_gone_is_left_to_the_workload(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "data").rename(tmp_path / "moved")
    find_resumable(folder)


def test_other_processors_are_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(64)))
    with pytest.raises(RunChanged, match="threads_per_rank"):
        find_resumable(folder)


def test_a_resume_says_at_its_start_which_faults_are_out_of_reach(folder: Path) -> None:
    seen: list[Any] = []
    with fakes.uninstalled():
        fakes.install()
        resume_experiment(find_resumable(folder), notify=seen.append)
    told = [event.text for event in seen if isinstance(event, Log) and "no longer strike" in event.text]
    assert [text.split()[1] for text in told] == ["f0", "f1"]
    kinds = [type(event).__name__ for event in seen]
    assert kinds.index("AttemptStarted") > 1


def test_faults_of_attempts_that_are_over_are_out_of_reach(experiment: Experiment, folder: Path) -> None:
    def lost(attempt: int | None) -> list[str]:
        return [sentence.split()[1] for sentence in out_of_reach(experiment.faults, folder, attempt)]

    assert lost(None) == []
    assert lost(0) == ["f0"]
    assert lost(1) == ["f0", "f1"]
    write_receipt(folder, receipt_for(experiment.faults[0], "run-1", 1, current_process(), None))
    assert lost(1) == ["f1"]
