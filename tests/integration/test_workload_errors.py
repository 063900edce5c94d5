"""A user's own code that raises: shown where it did, tried again once, and planned exceptions are recovered from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml
from run_kit import events, explain, kill

from chaos.experiment import parse_experiment
from chaos.run import Outcome, run_experiment
from trainers.events import DeathDetected

WORKLOAD = """\
from sibling import Broken
import torch
from pathlib import Path
from chaos import reached
from trainers.workload import Workload
import trainers.workloads.tiny as tiny

calls = 0

def build(config):
    workload = tiny.build({})

    def loss(model, batch):
        global calls
        calls += 1
        reached("user.loss")
        if config["raise_at"] is not None and calls > config["raise_at"]:
            raise Broken(calls, "twice")
        return workload.loss(model, batch)

    return Workload(workload.model, workload.optimizer, loss, workload.dataset, workload.scheduler)
"""
SIBLING = '''\
class Broken(Exception):
    """Cannot be unpickled: it does not take its arguments back."""

    def __init__(self, calls, often):
        super().__init__(f"the loss is broken after {calls} calls")
'''


def run_it(folder: Path, raise_at: int | None, *faults: dict[str, Any], notify: Any = lambda event: None) -> Outcome:
    (folder / "mine.py").write_text(WORKLOAD)
    (folder / "sibling.py").write_text(SIBLING)
    run = {"workload": "mine.py:build", "config": {"raise_at": raise_at}, "ranks": 2, "global_batch": 16,
           "microbatches": 2, "steps": 8, "save_every": 3, "standbys": 0}
    text = yaml.safe_dump({"run": run, "faults": list(faults)})
    return run_experiment(parse_experiment(text, folder / "experiment.yaml"), folder / "run", notify=notify)


def test_the_users_exception_is_shown_and_not_tried_for_ever(cluster: str, tmp_path: Path) -> None:
    seen: list[Any] = []
    outcome = run_it(tmp_path, 4, notify=seen.append)
    what = "Broken: the loss is broken after 5 calls (mine.py:18, in step 3)"
    detected = [e for e in events(outcome.folder, "supervisor", "detected") if e["how"] == "raised"]
    assert detected, explain(outcome)
    assert {event["detail"] for event in detected} == {what}
    assert {event["attempt"] for event in detected} == {0, 1}
    assert what in {event.detail for event in seen if isinstance(event, DeathDetected)}
    assert outcome.failure is not None
    assert outcome.failure.startswith(f"{what}: it came in two attempts in a row")
    assert len(events(outcome.folder, "supervisor", "fenced")) == 2
    (gave_up,) = events(outcome.folder, "supervisor", "gave_up")
    assert what in gave_up["reason"]
    assert outcome.exit_status == 2
    (data,) = events(outcome.folder, "supervisor", "dataset")
    assert data["code"]["files"] == [str(tmp_path / "mine.py"), str(tmp_path / "sibling.py")]


def test_planned_exceptions_in_the_users_code_are_recovered_from(cluster: str, tmp_path: Path) -> None:
    faults = [kill("user.loss", 1, attempt=attempt, rank=0, kind="exception") for attempt in (0, 1, 2)]
    outcome = run_it(tmp_path, None, *faults)
    assert outcome.exit_status == 0, explain(outcome)
    details = [e["detail"] for e in events(outcome.folder, "supervisor", "detected") if e["how"] == "raised"]
    assert len(details) == 3
    assert all(detail.startswith(f"InjectedFault: injected fault f{n}") for n, detail in enumerate(details))
