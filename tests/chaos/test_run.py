"""What surrounds a supervisor: run folder, history, verdict, interrupts, resuming. Without Ray."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chaos_kit as fakes
import pytest

from chaos.errors import DeviceMissing, ExperimentError, NotARun, OutputExists, RunFinished
from chaos.experiment import Experiment, parse_experiment
from chaos.interrupts import Interrupts
from chaos.passages import PassageCount, recorded_passages
from chaos.run import Outcome, find_resumable, resume_experiment, run_experiment
from chaos.runfolder import create, new_run_id
from storage.errors import Fenced
from storage.history import History, read_history
from trainers.errors import GaveUp
from trainers.events import Event

ROOT = Path(__file__).resolve().parents[2]
TEXT = """\
run: {workload: tiny, ranks: 2, global_batch: 16, microbatches: 2, steps: 10, save_every: 4, seed: 5, twin: false}
faults:
  - at: {rank: 1, point: step.end, hit: 4}
    gate: {role: committer, point: publish.before}
"""


@pytest.fixture(autouse=True)
def _fakes() -> Iterator[None]:
    with fakes.uninstalled():
        yield


@pytest.fixture
def experiment(tmp_path: Path) -> Experiment:
    return parse_experiment(TEXT, tmp_path / "e.yaml")


def events(folder: Path) -> list[dict[str, Any]]:
    (path,) = (folder / "history").glob("supervisor-*.jsonl")
    return [line.body for line in read_history(path).lines]


@pytest.mark.parametrize("own_ray", [True, False])
def test_half_precision_without_gpus_is_one_error_before_anything_starts(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own_ray: bool
) -> None:
    """4096 ranks: more GPUs than any machine has. A Ray that is there already may have them."""
    fakes.install()
    monkeypatch.setattr("chaos.cluster.owns_ray", lambda: own_ray)
    many = TEXT.replace("ranks: 2, global_batch: 16", "ranks: 4096, global_batch: 8192")
    half = parse_experiment(many.replace("seed: 5", "precision: fp16"), tmp_path / "e.yaml")
    folder = tmp_path / "run"
    if own_ray:
        with pytest.raises(DeviceMissing, match=r"fp16 needs CUDA, a GPU for each of the 4096 ranks, and this machine"):
            run_experiment(half, folder)
    else:
        run_experiment(half, folder)
    assert folder.exists() != own_ray


def test_a_run_from_folder_to_verdict(experiment: Experiment, tmp_path: Path) -> None:
    fakes.install()
    seen: list[Event] = []
    outcome = run_experiment(experiment, tmp_path / "below" / "run", notify=seen.append)
    assert (outcome.exit_status, outcome.failure, outcome.began) == (0, None, True)
    folder = outcome.folder
    assert json.loads((folder / "verdict.json").read_text()) == outcome.verdict
    written = (folder / "experiment.yaml").read_text()
    assert written == TEXT
    assert (folder / "history" / "gates" / "f0.held").is_fifo()
    assert [event["event"] for event in events(folder)] == ["opened", "run", "finished", "closed"]
    recorded = events(folder)[1]
    assert recorded["experiment_digest"] == f"sha256:{hashlib.sha256(TEXT.encode()).hexdigest()}"
    assert recorded["reproduce"] == f"killpoint run {tmp_path}/e.yaml --seed 5"
    assert recorded["faults"] == [fault.to_json() for fault in experiment.faults]
    assert (recorded["config_digest"], recorded["training_digest"]) == (
        experiment.config_digest,
        experiment.training_digest,
    )
    assert [type(event).__name__ for event in seen][:3] == ["Log", "AttemptStarted", "StepDone"]
    assert [recorded["run"]] == fakes.CLOSED


def test_the_end_of_the_history_has_the_heads_of_all_others(experiment: Experiment, tmp_path: Path) -> None:
    fakes.install()
    folder = tmp_path / "run"

    def join(_event: Event) -> None:
        if not list(folder.glob("history/worker-*")):
            History.open(folder / "history", "worker", "run").close()
            (folder / "history" / "launcher-h-1-1.jsonl").write_text("broken\n")

    run_experiment(experiment, folder, notify=join)
    (worker,) = (folder / "history").glob("worker-*.jsonl")
    head = read_history(worker).head
    assert head is not None
    assert events(folder)[-1]["heads"] == [head.as_dict()]


def test_the_folders_of_a_new_run_are_durable(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever writes there later finds them and syncs none of their parents."""
    synced: dict[str, list[str]] = {}
    fsync = os.fsync

    def noted(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.is_dir():
            synced[str(path.relative_to(tmp_path))] = sorted(each.name for each in path.iterdir())
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noted)
    create(tmp_path / "run", experiment)
    assert synced["run/store"] == ["ledger", "log", "manifests", "quarantine", "shards", "tmp"]
    assert synced["run/history"] == ["gates", "receipts"]
    assert synced["run"] == ["history", "store"]
    assert "run" in synced["."]


def test_a_folder_that_exists_is_left_as_it_is(experiment: Experiment, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    with pytest.raises(OutputExists, match="exists already and was left as it is"):
        run_experiment(experiment, tmp_path / "run")
    assert list((tmp_path / "run").iterdir()) == []


@pytest.mark.parametrize(("judged", "expected", "status"), [
    ("valid", "unknown", 2), ("unknown", "unknown", 2), ("invalid", "invalid", 1),
])  # fmt: skip
def test_a_run_that_gave_up_is_never_valid(
    experiment: Experiment, tmp_path: Path, judged: str, expected: str, status: int
) -> None:
    fakes.install("give-up", judged)
    outcome = run_experiment(experiment, tmp_path / "run")
    assert outcome.failure == "attempt 8 died too: raise max_attempts"
    assert (outcome.verdict["verdict"], outcome.exit_status) == (expected, status)
    assert outcome.verdict["failure"] == outcome.failure
    assert len(fakes.CLOSED) == 1


def test_the_loser_of_two_supervisors_judges_nothing(experiment: Experiment, tmp_path: Path) -> None:
    fakes.install("fenced")
    with pytest.raises(GaveUp) as caught:
        run_experiment(experiment, tmp_path / "run")
    assert isinstance(caught.value.__cause__, Fenced)
    assert not (tmp_path / "run" / "verdict.json").exists()
    assert events(tmp_path / "run")[-1]["event"] == "closed"


def test_a_defect_closes_what_was_started(experiment: Experiment, tmp_path: Path) -> None:
    fakes.install("crash")
    with pytest.raises(ZeroDivisionError):
        run_experiment(experiment, tmp_path / "run")
    assert len(fakes.CLOSED) == 1


@pytest.mark.parametrize("behaviour", ["interrupted", "interrupted-twice"])
def test_an_interrupt_cleans_up_and_is_unknown(
    experiment: Experiment, tmp_path: Path, behaviour: str
) -> None:
    fakes.install(behaviour)
    before = signal.getsignal(signal.SIGTERM)
    outcome = run_experiment(experiment, tmp_path / "run")
    assert outcome.exit_status == 2
    assert outcome.failure is not None
    hint, lost = outcome.failure.splitlines()
    assert hint == f"interrupted by SIGTERM; go on with: killpoint run --resume {tmp_path / 'run'}"
    assert lost == (
        "fault f0 (sigkill at attempt 0, rank 1, step.end hit 4) can no longer strike: the verdict cannot become valid"
    )
    assert [event["event"] for event in events(outcome.folder)] == ["opened", "run", "gave_up", "closed"]
    assert len(fakes.CLOSED) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_passages_of_a_clean_run_are_recorded(experiment: Experiment, tmp_path: Path) -> None:
    fakes.install()
    run_experiment(experiment.without_faults(), tmp_path / "run", record_passages=True)
    assert events(tmp_path / "run")[1]["faults"] == []
    assert recorded_passages(tmp_path / "run") == (PassageCount("recover.formed", 0, "supervisor", None, 1),)


def fake_killpoint(behaviour: str, *arguments: str, cwd: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, fakes.__file__, behaviour, *arguments], cwd=cwd, text=True, stdout=subprocess.PIPE,
        stderr=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def killed_supervisor(tmp_path: Path) -> Path:
    """The folder of a run whose supervisor was killed."""
    (tmp_path / "e.yaml").write_text(TEXT)
    process = fake_killpoint("die", "run", "e.yaml", "--output", "run", "--seed", "9", cwd=tmp_path)
    process.communicate(timeout=60)
    assert process.returncode == -signal.SIGKILL
    return tmp_path / "run"


def test_resuming_goes_on_with_the_same_run(tmp_path: Path) -> None:
    folder = killed_supervisor(tmp_path)
    (before,) = (folder / "history").glob("supervisor-*.jsonl")
    fakes.install()
    found = find_resumable(folder)
    assert found.experiment.run.seed == 9
    seen: list[Event] = []
    outcome = resume_experiment(found, notify=seen.append)  # type: ignore[arg-type]
    assert outcome.exit_status == 0
    assert "no longer strike" not in str(seen)  # nothing was fenced, so no attempt is over
    (after,) = set((folder / "history").glob("supervisor-*.jsonl")) - {before}
    resumed = [line.body for line in read_history(after).lines][1]
    first = read_history(before)
    opened = first.lines[0].body
    assert resumed["event"] == "resumed"
    assert resumed["previous"] == [{
        "file": before.name, "pid": opened["pid"], "start_ticks": opened["start_ticks"],
        "head": first.head.as_dict() if first.head else None,
    }]  # fmt: skip
    assert [opened["run"]] == fakes.CLOSED
    with pytest.raises(RunFinished, match="has reached its target; judge it with: killpoint audit"):
        find_resumable(folder)


def test_an_experiment_that_was_changed_cannot_be_resumed(tmp_path: Path) -> None:
    folder = killed_supervisor(tmp_path)
    (folder / "experiment.yaml").write_text(TEXT.replace("steps: 10", "steps: 11"))
    with pytest.raises(ExperimentError, match="was changed since the run began"):
        find_resumable(folder)


def test_a_folder_that_is_no_run_cannot_be_resumed(experiment: Experiment, tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="is no run"):
        find_resumable(tmp_path)
    create(tmp_path / "run", experiment)
    with pytest.raises(NotARun, match="does not say what was run"):
        find_resumable(tmp_path / "run")
    (tmp_path / "run" / "history" / "supervisor-h-1-1.jsonl").write_text("broken\n")
    with pytest.raises(NotARun, match="history cannot be read"):
        find_resumable(tmp_path / "run")


def test_ctrl_c_on_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "e.yaml").write_text(TEXT)
    process = fake_killpoint("wait", "run", "e.yaml", "--output", "run", "--json", cwd=tmp_path)
    assert process.stderr is not None
    while "waiting" not in process.stderr.readline():
        pass
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 2
    assert json.loads(out)["verdict"] == "unknown"
    assert "killpoint: interrupted by SIGINT; go on with: killpoint run --resume" in err
    assert json.loads((tmp_path / "run" / "verdict.json").read_text()) == json.loads(out)


def test_deferred_interrupts_come_at_the_end_of_the_block() -> None:
    reached = []
    with Interrupts() as interrupts, pytest.raises(KeyboardInterrupt):  # noqa: PT012
        with interrupts.deferred():
            signal.raise_signal(signal.SIGINT)
            reached.append("inside")
        reached.append("after")
    assert reached == ["inside"]
    assert interrupts.signal is signal.SIGINT


@pytest.mark.parametrize("ignored", [False, True])
def test_a_hang_up_is_an_interrupt_unless_it_was_ignored_before(ignored: bool) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with Interrupts() as interrupts:
            interrupts.ignore_hangups()
            signal.raise_signal(signal.SIGHUP)
            interrupts.install()
            with pytest.raises(KeyboardInterrupt) if not ignored else contextlib.nullcontext():
                signal.raise_signal(signal.SIGHUP)
        assert interrupts.signal is (None if ignored else signal.SIGHUP)
        assert signal.getsignal(signal.SIGHUP) is (signal.SIG_IGN if ignored else signal.SIG_DFL)
    finally:
        signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize(("workload", "stem"), [
    ("tiny", "tiny"), ("a.b:build", "b"), ("my/mod-el.py:build", "model"), ("-.py:b", "run"),
])  # fmt: skip
def test_run_ids_are_readable_and_unique(workload: str, stem: str) -> None:
    experiment = parse_experiment(TEXT.replace("workload: tiny", f"workload: '{workload}'"))
    first, second = new_run_id(experiment), new_run_id(experiment)
    assert first != second
    assert first.rpartition("-")[0] == stem


def test_a_workload_in_a_file_is_found_from_the_experiment(tmp_path: Path) -> None:
    fakes.install()
    text = TEXT.replace("workload: tiny", "workload: 'mine/model.py:build'")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "model.py").write_text("def build(config): ...\n")
    run_experiment(parse_experiment(text, tmp_path / "e.yaml"), tmp_path / "run")
    assert events(tmp_path / "run")[1]["workload"] == f"{tmp_path}/mine/model.py:build"


def test_unknown_verdicts_have_status_two(tmp_path: Path) -> None:
    assert Outcome(tmp_path, {"verdict": "unknown"}).exit_status == 2
