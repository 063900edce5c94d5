"""The twin that trials side by side share has to be the one that each of them would have trained."""

from __future__ import annotations

import signal
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from chaos.errors import RecordingFailed, TwinFailed
from chaos.experiment import Experiment, load_experiment, packaged_experiment
from chaos.run import Outcome
from chaos.sweep import record
from chaos.sweep.record import CLEAN, share_twin, with_faults

FAULT = {"kind": "sigkill", "at": {"attempt": 0, "role": "rank", "rank": 1, "point": "step.end", "hit": 2}}
NO_PLACE: Any = None
PLACE: Any = SimpleNamespace(interrupts=SimpleNamespace(signal=None))


def test_a_workload_in_a_file_is_named_as_trials_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relative to the experiment's file it would be another training, and no trial could be compared with it."""
    given: list[tuple[Experiment, Path]] = []
    monkeypatch.setattr(record, "provide_twin", lambda of, folder, place, notify: given.append((of, folder)))
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"run": {"workload": "workload.py:build"}, "faults": [FAULT]}))
    experiment = load_experiment(tmp_path / "mine.yaml")
    share_twin(experiment, tmp_path / "sweep", NO_PLACE, lambda text: None)
    ((of_twin, folder),) = given
    trial = with_faults(experiment, [FAULT], tmp_path / "sweep" / "trials" / "a.yaml", twin=True)
    assert of_twin.training_digest == trial.training_digest != experiment.training_digest
    assert folder == tmp_path / "sweep" / CLEAN


def test_a_twin_that_fails_is_left_for_the_trials_to_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_given: object) -> None:
        raise TwinFailed("it did not finish")

    monkeypatch.setattr(record, "provide_twin", fails)
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump({"run": {"workload": "tiny"}}))
    experiment = load_experiment(tmp_path / "mine.yaml")
    share_twin(experiment, tmp_path / "sweep", PLACE, lambda text: None)
    struck: Any = SimpleNamespace(interrupts=SimpleNamespace(signal=signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        share_twin(experiment, tmp_path / "sweep", struck, lambda text: None)


def test_an_interrupt_ends_a_recording_and_is_no_failure_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    outcome = Outcome(tmp_path, {"verdict": "unknown", "invariants": []}, "interrupted by SIGINT", True, signal.SIGINT)
    monkeypatch.setattr(record, "run_experiment", lambda *given, **more: outcome)
    experiment = packaged_experiment("sweep.yaml")
    with pytest.raises(KeyboardInterrupt):
        record.undisturbed(experiment, tmp_path, NO_PLACE, lambda text: None)
    monkeypatch.setattr(record, "run_experiment", lambda *given, **more: replace(outcome, interrupted=None))
    with pytest.raises(RecordingFailed, match="ended unknown: interrupted by SIGINT"):
        record.undisturbed(experiment, tmp_path, NO_PLACE, lambda text: None)
