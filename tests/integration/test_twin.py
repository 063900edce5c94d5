"""The twin of real runs: what only it can notice is found, and a shaky workload is not blamed on recovery."""

from __future__ import annotations

from pathlib import Path

import yaml
from run_kit import explain, invariant, kill

from chaos.experiment import parse_experiment
from chaos.run import Outcome, find_resumable, resume_experiment, run_experiment
from chaos.twin import TwinEvent, cache_folder
from trainers.events import AttemptStarted

WORKLOAD = """\
import itertools
import os
from dataclasses import replace

from trainers.workloads import tiny


def build(config):
    workload, calls = tiny.build(config), itertools.count()

    def loss(model, batch):
        return workload.loss(model, batch) * {factor}

    return replace(workload, loss=loss)
"""
# The state of `calls` is in no checkpoint: after a restart it begins again.
FORGETFUL = WORKLOAD.format(factor="(1 + next(calls) / 1000)")
SHAKY = WORKLOAD.format(factor="(1 + int.from_bytes(os.urandom(2)) / 1e6)")
SMALL = {"ranks": 1, "global_batch": 8, "microbatches": 2, "steps": 10, "save_every": 3, "standbys": 0}


def run_with_twin(folder: Path, source: str) -> Outcome:
    (folder / "workload.py").write_text(source)
    fault = kill("microbatch.backward", 17, rank=0)  # the save of step 6 has begun, so that of step 3 is published
    text = yaml.safe_dump({"run": {"workload": "workload.py:build", **SMALL}, "faults": [fault]})
    return run_experiment(parse_experiment(text, folder / "experiment.yaml"), folder / "run")


def test_state_that_no_checkpoint_holds_shows_in_the_first_update(cluster: str, tmp_path: Path) -> None:
    outcome = run_with_twin(tmp_path, FORGETFUL)
    verdicts = {each["id"]: each for each in outcome.verdict["invariants"]}
    assert [number for number, each in verdicts.items() if each["verdict"] == "invalid"] == [5], explain(outcome)
    (restored,) = (each["restored_step"] for each in outcome.verdict["recoveries"])
    assert restored in (3, 6)
    first = f"attempt 1, step {restored + 1}, rank 0: not the twin's "
    assert verdicts[5]["witness"].startswith(first), verdicts[5]
    assert "loss (" in verdicts[5]["witness"]
    assert outcome.exit_status == 1
    kept = {path.name for path in cache_folder().iterdir()}
    assert kept
    assert not [name for name in kept if name.startswith("tmp-")]


def test_a_workload_that_never_does_the_same_twice_is_not_blamed_on_recovery(cluster: str, tmp_path: Path) -> None:
    outcome = run_with_twin(tmp_path, SHAKY)
    assert invariant(outcome, 5) == "unknown", explain(outcome)
    witness = next(each["witness"] for each in outcome.verdict["invariants"] if each["id"] == 5)
    assert "not deterministic" in witness
    assert outcome.exit_status == 2


def test_an_interrupt_in_the_twin_leaves_the_run_whole(cluster: str, tmp_path: Path) -> None:
    """Comes when the twin begins, as Ctrl-C might; `--resume` then trains the twin only."""

    def interrupt(event: object) -> None:
        if isinstance(event, TwinEvent) and isinstance(event.event, AttemptStarted):
            raise KeyboardInterrupt

    text = yaml.safe_dump({"run": {"workload": "tiny", "seed": 41, **SMALL}})
    experiment = parse_experiment(text, tmp_path / "experiment.yaml")
    outcome = run_experiment(experiment, tmp_path / "run", notify=interrupt)
    assert (outcome.verdict["verdict"], invariant(outcome, 5)) == ("unknown", "unknown"), explain(outcome)
    assert not (tmp_path / "run" / "twin").exists()
    again = resume_experiment(find_resumable(tmp_path / "run"))
    assert (again.verdict["verdict"], invariant(again, 5)) == ("valid", "valid"), explain(again)
