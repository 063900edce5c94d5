"""Faults that are no sudden death: what an experiment may ask for, and what a process does to itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from storage_kit import CONFIG, OWNER, RUN, draft

from chaos.errors import ExperimentError
from chaos.experiment import parse_experiment
from chaos.faults import Fault, FaultKind, Outage, Slow
from chaos.points import Role
from chaos.receipts import read_receipts, receipt_for
from chaos.stray import another_run, place, prepare_stray
from chaos.striker import Striker
from storage.commit import commit_checkpoint
from storage.errors import Unavailable
from storage.history import History, read_history
from storage.log import CommitLog
from storage.manifest import decode, manifest_path
from storage.objects import LocalObjects
from storage.process import current_process
from storage.shard import read_verified

RANK = {"role": "rank", "rank": 1, "point": "microbatch.forward", "hit": 5}
SUPERVISOR = {"attempt": 1, "role": "supervisor", "point": "recover.fence.after"}
GATE = {"role": "committer", "point": "publish.before"}
SLOW = {"delay_s": 0.2, "passages": 3}


def parsed(kind: str, at: dict[str, Any] = RANK, **more: Any) -> Fault:
    run = {"workload": "tiny", "global_batch": 16, "microbatches": 2, "steps": 10}
    return parse_experiment(yaml.safe_dump({"run": run, "faults": [{"kind": kind, "at": at, **more}]})).faults[0]


@pytest.mark.parametrize(
    ("given", "field", "value"),
    [
        ({"kind": "sigterm"}, "grace_s", 30.0),
        ({"kind": "sigterm", "grace_s": 2}, "grace_s", 2),
        ({"kind": "sigterm", "at": {"role": "rank", "rank": 0, "after_s": 1.0}}, "after_s", 1.0),
        ({"kind": "slow", "slow": SLOW}, "slow", Slow(0.2, 3)),
        ({"kind": "stray", "at": SUPERVISOR}, "role", Role.SUPERVISOR),
        ({"kind": "outage", "outage": {"for_s": 2}}, "outage", Outage(for_s=2)),
        ({"kind": "outage", "at": SUPERVISOR, "outage": {"operations": 3}}, "outage", Outage(operations=3)),
    ],
)
def test_what_is_asked_for_is_planned(given: dict[str, Any], field: str, value: object) -> None:
    fault = parsed(**given)
    assert getattr(fault, field) == value
    assert Fault.from_json(json.loads(json.dumps(fault.to_json()))) == fault


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kind": "sigkill", "grace_s": 3}, "faults[0].grace_s: belongs to kind sigterm"),
        ({"kind": "sigterm", "grace_s": 0}, "faults[0].grace_s"),
        ({"kind": "sigterm", "at": SUPERVISOR}, "faults[0].at.role: supervisor: the notice is for a rank"),
        ({"kind": "slow"}, "faults[0].slow: is missing: how much"),
        ({"kind": "slow", "slow": {**SLOW, "delay_s": 10}}, "faults[0].slow.delay_s: 10: would be taken for a hang"),
        ({"kind": "slow", "slow": {**SLOW, "passages": 17}}, "faults[0].slow.passages: 17: the last would be hit 21"),
        ({"kind": "slow", "slow": SLOW, "gate": GATE}, "faults[0].gate: is let go by a death: a delay kills nothing"),
        ({"kind": "slow", "at": {"rank": 1, "after_s": 1.0}, "slow": SLOW}, "a delay needs a point"),
        ({"kind": "hang", "slow": SLOW}, "faults[0].slow: belongs to kind slow, not to hang"),
        ({"kind": "stray"}, "faults[0].at.role: the store is given another run's files at a point of role supervisor"),
        ({"kind": "outage"}, "faults[0].outage: is missing: for how long"),
        ({"kind": "outage", "outage": {}}, "faults[0].outage: needs exactly one of operations and for_s"),
        ({"kind": "outage", "outage": {"for_s": 1, "operations": 1}}, "needs exactly one of operations and for_s"),
        ({"kind": "outage", "outage": {"times": 1}}, "faults[0].outage.times: unknown field"),
        ({"kind": "outage", "at": {"role": "standby", "point": "standby.warm"}, "outage": {"for_s": 1}}, "no store"),
    ],
)
def test_what_cannot_be_is_refused_where_it_stands(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        parsed(**given)
    assert says in str(caught.value)
    assert ".yaml:" in str(caught.value)


def test_receipts_repeat_what_only_their_kind_has(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.SLOW, 0, Role.RANK, 1, "step.end", 1, slow=Slow(0.5, 2))
    receipt = receipt_for(fault, "run", 1, current_process(), None)
    assert receipt.settings == {"slow": {"delay_s": 0.5, "passages": 2}}


def test_a_straggler_is_late_at_each_of_its_passages_and_says_so_once(run_folder: Path) -> None:
    history = History.open(run_folder / "history", "worker", "run")
    striker = Striker("run", run_folder, (Fault("f0", FaultKind.SLOW, 0, Role.RANK, 1, "p", 2, slow=Slow(0.1, 2)),))
    striker.enter(0, "rank", 1, history)
    took = []
    for _ in range(4):
        started = time.monotonic()
        striker("p")
        took.append(time.monotonic() - started >= 0.1)
    assert took[1:] == [True, True, False]
    (receipt,) = read_receipts(run_folder)
    assert (receipt.kind, receipt.hit, receipt.settings) == ("slow", 2, {"slow": {"delay_s": 0.1, "passages": 2}})
    slowed = [line.body for line in read_history(history.path).lines if line.event == "slowed"]
    assert [(body["fault"], body["passages"]) for body in slowed] == [("f0", 2)]
    striker.enter(0, "rank", 1, history)  # it has its receipt, and never strikes again
    started = time.monotonic()
    striker("p")
    striker("p")
    assert time.monotonic() - started < 0.1


def test_an_outage_begins_at_its_passage(run_folder: Path) -> None:
    fault = Fault("f0", FaultKind.OUTAGE, 0, Role.RANK, 1, "p", 1, outage=Outage(operations=1))
    striker = Striker("run", run_folder, (fault,))
    objects = striker.store(LocalObjects(run_folder / "store"))
    striker.enter(0, "rank", 1, None)
    assert objects.list("log") == []
    striker("p")
    striker.enter(1, "rank", 1, None)  # the store does not care whose attempt it is
    with pytest.raises(Unavailable):
        objects.list("log")
    assert objects.list("log") == []
    plain = LocalObjects(run_folder / "store")
    assert Striker("run", run_folder, ()).store(plain) is plain  # nothing planned, nothing in between


def test_a_stray_is_another_runs_newer_checkpoint_that_verifies(run_folder: Path) -> None:
    objects = LocalObjects(run_folder / "store")
    log = CommitLog(objects, RUN)
    log.fence(CONFIG, OWNER)
    assert prepare_stray(run_folder, RUN) is None  # nothing is published
    commit_checkpoint(objects, log, draft(objects, 3))
    draft(objects, 4)  # torn: its files are there, and it is not published
    stray = prepare_stray(run_folder, RUN)
    assert stray is not None
    assert stray.wound.path == "store/manifests/s00000005-a0000.json"
    assert not (run_folder / stray.wound.path).exists()  # the receipt comes first
    place(run_folder, stray)
    manifest, digest = decode(objects.read(manifest_path("s00000005-a0000")), "s00000005-a0000")
    assert (manifest.run, digest) == (another_run(RUN), stray.wound.after)
    assert manifest.run != RUN
    for record in manifest.files:
        assert RUN.encode() not in read_verified(objects, record)
    assert [entry.seq for entry in CommitLog(objects, RUN).read()] == [0, 1]  # the log has nothing of it
