"""Invariant 10: what the run says of itself in two places, and files that have to be there to say it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from judging import Judge
from simulated_run import Edit, Settings, Simulation, fault, one_kill, two_kills

from chaos.audit import audit_run


def on(what: str, change: dict[str, Any], /, **where: Any) -> Edit:
    """Changes everything of this sort that has these fields, before it is sealed."""

    def edit(sort: str, thing: Any) -> None:
        if sort == what and all(thing.get(key) == value for key, value in where.items()):
            thing.update(change)

    return edit


PRINTS = {"dataset": "sha256:x", "plan": "sha256:x", "config": "sha256:x", "code": "x"}


@pytest.mark.parametrize(
    ("edit", "words"),
    [
        (on("event", {"seed": 8}, event="run"), "the run has seed 8, its plan 7"),
        (on("event", {"experiment_digest": "sha256:0"}, event="run"), "experiment.yaml is not the one that the run"),
        (on("event", {"training_digest": "sha256:0"}, event="run"),
         "attempt 0 (entry 0) was begun with another configuration than the run"),
        (on("event", {"training_digest": "sha256:0"}, event="run"), "s00000002-a0000 is of another configuration than"),
        (on("entry", {"config": "sha256:0"}, kind="fence", attempt=1),
         "attempt 1 (entry 4) was begun with another configuration than the run"),
        (on("manifest", {"fingerprints": PRINTS}, step=10),
         "s00000010-a0002 is of another dataset, plan, config and code than s00000002-a0000"),
        (on("event", {"global_batch": 0}, event="run"), "the run has global_batch 0, which no run can have"),
        (on("event", {"steps": -1}, event="run"), "the run has steps -1, which no run can have"),
    ],
)  # fmt: skip
def test_two_places_that_contradict_each_other(tmp_path: Path, judged: Judge, edit: Edit, words: str) -> None:
    judged(two_kills(tmp_path / "run", edit).folder, 10, "invalid", words)


@pytest.mark.filterwarnings("error")
def test_a_batch_of_nothing_is_not_divided_by(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run", on("event", {"global_batch": 0}, event="run"))
    judged(run.folder, 3, "unknown", "the history says that a step has 0 samples")


def test_a_negative_seed_is_the_plans_in_64_bits(tmp_path: Path) -> None:
    run = two_kills(tmp_path / "run", on("event", {"seed": 7 - (1 << 63)}, event="run"), seed=7 + (1 << 63))
    assert "its plan" not in audit_run(run.folder).invariant(10).witness


def test_an_experiment_file_that_was_replaced(run: Simulation, judged: Judge) -> None:
    (run.folder / "experiment.yaml").write_text("run: {workload: tiny}\n")
    judged(run.folder, 10, "invalid", "experiment.yaml is not the one that the run began with")


def test_an_experiment_file_that_is_gone(run: Simulation, judged: Judge) -> None:
    (run.folder / "experiment.yaml").unlink()
    judged(run.folder, 10, "unknown", "experiment.yaml is missing or cannot be read")


def test_a_run_that_does_not_say_of_which_file_it_is(tmp_path: Path, judged: Judge) -> None:
    run = two_kills(tmp_path / "run", on("event", {"experiment_digest": None}, event="run"))
    judged(run.folder, 10, "unknown", "the `run` event does not say of which experiment file the run is")


def look_again(run: Simulation, **changes: Any) -> None:
    """The supervisor names dataset and plan once more, otherwise."""
    lines = bodies(run.supervisor.path)
    again = {"event": "dataset", "attempt": None, **{key: copy.deepcopy(lines[1][key]) for key in ("dataset", "plan")}}
    for key, value in changes.items():
        place, _, name = key.partition("_")
        again[place][name] = value
    lines.insert(2, {**again, "t_ns": lines[1]["t_ns"], "clock": 2})
    for clock, line in enumerate(lines, 1):
        line["clock"] = clock
    rechain(run.supervisor.path, lines)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"plan_seed": 99}, "names another plan than s00000002-a0000"),
        ({"dataset_fingerprint": "sha256:0"}, "names another dataset than s00000002-a0000"),
        ({"dataset_rows": 3}, "names a plan of 50 rows for a dataset of 3, which is another than s00000002-a0000"),
    ],
)
def test_another_dataset_or_plan_later(run: Simulation, judged: Judge, changes: dict[str, Any], words: str) -> None:
    look_again(run, **changes)
    judged(run.folder, 10, "invalid", f"{run.supervisor.name} {words}")


def test_the_same_dataset_and_plan_again(run: Simulation) -> None:
    look_again(run)
    assert audit_run(run.folder).verdict == "valid"


def test_a_supervisor_that_found_the_dataset_changed_and_trained_nothing(tmp_path: Path) -> None:
    """It fences, looks, gives up, and a third one goes on when the dataset is back."""
    planned = fault(0, 0, "supervisor", None, "supervisor.training")
    sim = Simulation(tmp_path / "run", Settings(faults=[planned]))
    sim.start()
    sim.train(5)
    sim.receipt(planned, sim.supervisor)
    first = sim.supervisor
    for number in range(2):
        sim.supervisor = sim._recorder("supervisor")
        named = [{"file": first.name, **first.who, "head": first.head}]
        sim.say(sim.supervisor, "resumed", previous=named)
        if number == 0:
            plan = {"rows": 51, "group_rows": 8, "window_groups": 2, "seed": 7}
            dataset = {"path": "/elsewhere", "fingerprint": "sha256:0", "rows": 51}
            sim.fence()
            sim.say(sim.supervisor, "dataset", dataset=dataset, plan=plan)
            sim.say(sim.supervisor, "gave_up", 1, reason="FingerprintMismatch: another dataset")
            sim.say(sim.supervisor, "closed")
    for proc in sim.procs:
        sim.say(sim.supervisor, "killing", None, signal=9, why="left by an earlier supervisor", **proc.history.who)
        sim.exited(proc, 9)
    sim.recover()
    sim.train(12)
    sim.finish()
    verdict = audit_run(sim.folder)
    assert verdict.verdict == "valid", verdict.invariants


def test_a_clock_that_stands_still(run: Simulation, judged: Judge) -> None:
    path = run.supervisor.path
    rechain(path, [{**line, "clock": 1} for line in bodies(path)])
    judged(run.folder, 10, "unknown", f"history/{path.name} has a clock that does not advance")


def test_a_launcher_that_is_gone_with_everything_that_named_it(run: Simulation, judged: Judge) -> None:
    gone = sorted((run.folder / "history").glob("launcher-*.jsonl"))[0]
    gone.unlink()
    lines = bodies(run.supervisor.path)
    lines[-1]["heads"] = [head for head in lines[-1]["heads"] if head["file"] != gone.name]
    rechain(run.supervisor.path, lines)
    judged(run.folder, 10, "unknown", "the history of the launcher of process 103 (rank) is missing")


def test_a_launcher_that_closes_without_having_seen_the_end(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing.get("pid")) == ("exited", 103):
            thing["drop"] = True

    sim = one_kill(tmp_path / "run", edit)
    judged(sim.folder, 10, "unknown", "is closed, and does not say how process 103 ended")


def released(folder: Path, edit: Edit = lambda kind, thing: None) -> Simulation:
    """A run with one kill whose processes serve other runs afterwards."""
    planned = fault(0, 0, "rank", 1, "microbatch.backward")
    sim = Simulation(folder, Settings(faults=[planned]), edit)
    sim.start()
    sim.train(5)
    sim.kill(planned)
    sim.recover()
    sim.train(12)
    sim.finish(released=True)
    return sim


def test_processes_that_live_on_for_other_runs(tmp_path: Path) -> None:
    verdict = audit_run(released(tmp_path / "run").folder)
    assert verdict.verdict == "valid", verdict.invariants


def test_a_process_that_was_released_before_it_had_ended_its_history(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and (thing["event"], thing["role"]) == ("closed", "worker"):
            thing["drop"] = True

    judged(released(tmp_path / "run", edit).folder, 10, "unknown", "has no end, and nothing says that process")


def test_a_struck_process_of_which_its_launcher_says_that_it_lives_on(tmp_path: Path, judged: Judge) -> None:
    def edit(kind: str, thing: Any) -> None:
        if kind == "event" and thing["event"] == "exited":
            thing["event"] = "released"
        if kind == "event" and thing["event"] == "exit_confirmed":
            thing["drop"] = True

    judged(released(tmp_path / "run", edit).folder, 10, "unknown", "f0 (sigkill of rank 1 at microbatch.backward")
