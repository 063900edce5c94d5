"""Invariant 10: what the run says of itself in two places, and files that have to be there to say it."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from audit_files import bodies, rechain
from evidence_by_hand import begun, chose, evidence, fence, manifest_seen, published, recorded
from judging import Judge
from simulated_run import Edit, Settings, Simulation, fault, one_kill, two_kills

from chaos.audit import audit_run
from chaos.audit.events import ExitConfirmed, Exited, ProcessNamed, Released, Spawned
from chaos.audit.evidence import Entry, Fingerprints, HistoryFile, ManifestSeen, Publish
from chaos.audit.facts import DataNamed, DatasetNamed, PlanSpec
from chaos.audit.plan import plan_fingerprint
from chaos.audit.selfsame import contradictions, lost_facts


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


# -- from evidence in memory

TWO, FOUR, SIX = (published(seq, attempt, number) for seq, attempt, number in ((1, 0, 2), (2, 0, 4), (5, 1, 6)))
LOG: list[Entry] = [fence(0, 0), TWO, FOUR, fence(3, 1), chose(4, 1, FOUR), SIX]
SPEC = PlanSpec(50, 8, 2, 7)
EXPERIMENT = "sha256:experiment"
RIGHT = Fingerprints("sha256:data", plan_fingerprint(SPEC), "sha256:t", "code")


def seen(publish: Publish, prints: Fingerprints = RIGHT) -> ManifestSeen:
    return manifest_seen(publish, {}, fingerprints=prints)


WHOLE = begun(ranks=3, experiment_digest=EXPERIMENT)
ALL = [seen(TWO), seen(FOUR), seen(SIX)]


def told(entries: Sequence[Entry] = LOG, manifests: Sequence[ManifestSeen] = ALL, **more: Any) -> list[str]:
    began = more.pop("begun", WHOLE)
    return list(contradictions(evidence(entries, manifests=manifests, begun=began, **more)))


def test_places_that_agree() -> None:
    assert told(plan=SPEC, experiment=EXPERIMENT) == []
    assert told(begun=None, plan=SPEC, experiment="sha256:another") == []
    assert told(begun=begun(experiment_digest=None), experiment="sha256:another") == []
    assert told(experiment=None) == []
    assert told((), ()) == []


@pytest.mark.parametrize("name", ["ranks", "microbatches", "global_batch", "steps", "save_every"])
def test_counts_are_at_least_one(name: str) -> None:
    assert told(begun=begun(**{name: 1})) == []
    for number in (0, -1):
        assert told(begun=begun(**{name: number})) == [f"the run has {name} {number}, which no run can have"]


def test_another_experiment_file() -> None:
    assert told(experiment="sha256:another") == ["experiment.yaml is not the one that the run began with"]


@pytest.mark.parametrize(
    ("seed", "planned", "same"),
    [(7, 7, True), (7, 8, False), (-1, (1 << 64) - 1, True), (1 << 64, 0, True), (-(1 << 63), 1 << 63, True),
     (1 << 63, 1 << 63, True), (-2, (1 << 64) - 1, False)],
)  # fmt: skip
def test_the_seed_of_the_plan_is_the_runs_in_64_bits(seed: int, planned: int, same: bool) -> None:
    found = told(begun=begun(seed=seed), plan=PlanSpec(50, 8, 2, planned))
    assert found == ([] if same else [f"the run has seed {seed}, its plan {planned}"])


def test_attempts_that_were_begun_with_another_configuration() -> None:
    """In order; of one that published nothing the configuration says nothing."""
    other = "sha256:other"
    log: list[Entry] = [fence(0, 0, 1, other), TWO, FOUR, fence(3, 1, 1, other), SIX, fence(6, 2, 1, other)]
    assert told(log) == [
        "attempt 0 (entry 0) was begun with another configuration than the run",
        "attempt 1 (entry 3) was begun with another configuration than the run",
    ]


def test_a_checkpoint_of_something_else_than_the_first_one() -> None:
    data, code = replace(RIGHT, dataset="x"), replace(RIGHT, plan="x", code="x")
    assert told(manifests=[seen(TWO), seen(FOUR, data), seen(SIX, code)]) == [
        f"{FOUR.name} is of another dataset than {TWO.name}", f"{SIX.name} is of another plan and code than {TWO.name}",
    ]  # fmt: skip
    assert told(manifests=[seen(FOUR, data), seen(SIX, data)]) == []
    lost = ManifestSeen("m", seen(TWO, data).manifest, "sha256:another")
    assert told(manifests=[lost, seen(FOUR), seen(SIX)]) == []


def test_checkpoints_of_another_configuration_than_the_run() -> None:
    other = replace(RIGHT, config="x")
    found = told(manifests=[seen(TWO, other), seen(FOUR, other), seen(SIX, other)])
    assert found == [f"{TWO.name} is of another configuration than the run"]
    assert told(begun=None, manifests=[seen(TWO, other), seen(FOUR, other), seen(SIX, other)]) == []
    assert told(manifests=[seen(TWO), seen(FOUR, other)]) == [f"{FOUR.name} is of another config than {TWO.name}"]


def named(rows: int = 50, spec: PlanSpec = SPEC, fingerprint: str = "sha256:data") -> DataNamed:
    return DataNamed(DatasetNamed("/d", fingerprint, rows), spec)


ROWS = "a plan of 50 rows for a dataset of 3, which is another"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ([named()], []),
        ([named(), named(fingerprint="x")], ["another dataset"]),
        ([named(spec=replace(SPEC, seed=8))], ["another plan"]),
        ([named(3), named()], [ROWS]),
        ([named(3, fingerprint="x"), named(fingerprint="x")], ["another dataset", ROWS, "another dataset"]),
    ],
)
def test_what_a_supervisor_found_is_that_of_the_first_checkpoint_that_its_attempts_published(
    data: list[DataNamed], words: list[str]
) -> None:
    file = recorded("supervisor", 1, data=tuple(data))
    assert told(files=[file]) == [f"supervisor-h-1-10.jsonl names {each} than {TWO.name}" for each in words]


def test_what_a_supervisor_found_without_a_checkpoint_of_its_own_is_no_contradiction() -> None:
    wrong = (named(fingerprint="x"),)
    assert told(files=[recorded("supervisor", 9, data=wrong)]) == []  # none of these fences is its
    assert told(files=[recorded("supervisor", 1, opened=False, data=wrong)]) == []
    assert told(manifests=[], files=[recorded("supervisor", 1, data=wrong)]) == []
    log: list[Entry] = [fence(0, 0, 2), TWO, FOUR, fence(3, 1, 1)]
    assert told(log, files=[recorded("supervisor", 1, data=wrong)]) == []


def test_each_supervisor_is_beside_its_own_checkpoints() -> None:
    log: list[Entry] = [fence(0, 0, 2), TWO, FOUR, fence(3, 1, 1), chose(4, 1, FOUR), SIX]
    wrong = (named(fingerprint="x"),)
    files = [recorded("supervisor", 9, data=wrong), recorded("supervisor", 1, data=wrong),
             recorded("supervisor", 2, data=wrong)]  # fmt: skip
    assert told(log, files=files) == [
        f"supervisor-h-1-10.jsonl names another dataset than {SIX.name}",
        f"supervisor-h-2-20.jsonl names another dataset than {TWO.name}",
    ]
    again: list[Entry] = [*LOG, fence(6, 2, 1), chose(7, 2, SIX), published(8, 2, 8)]
    assert told(again, [*ALL, seen(published(8, 2, 8))], files=files[1:2]) == [
        f"supervisor-h-1-10.jsonl names another dataset than {TWO.name}"
    ]


# -- what is missing


def lacks(*files: HistoryFile, **more: Any) -> list[str]:
    return list(lost_facts(evidence(files=files, begun=more.pop("begun", WHOLE), **more)))


def test_what_the_run_event_and_the_experiment_file_say_of_each_other() -> None:
    assert lacks(experiment=EXPERIMENT) == []
    assert lacks(experiment="sha256:another") == []
    assert lacks(experiment=None) == ["experiment.yaml is missing or cannot be read"]
    for experiment in (None, EXPERIMENT):
        assert lacks(begun=begun(experiment_digest=None), experiment=experiment) == [
            "the `run` event does not say of which experiment file the run is"
        ]
    assert lacks(begun=None, experiment=None) == []


def process(role: str, pid: int) -> Any:
    return 0, ProcessNamed(role, None, pid, pid * 10, "h", "f"), 0


def test_every_process_but_a_supervisor_has_a_launcher() -> None:
    supervisor = recorded("supervisor", 1, process("supervisor", 1), process("rank", 5), process("committer", 6))
    launcher = recorded("launcher", 1, (None, Spawned(6, 60), 0))
    found = lacks(supervisor, launcher, begun=None)
    assert found == ["the history of the launcher of process 5 (rank) is missing"]


@pytest.mark.parametrize(
    ("said", "open_"),
    [
        ([], 5),
        ([Exited(5, 50, 9, None)], 6),
        ([ExitConfirmed(5, 50, 9, None)], 6),
        ([Released(5, 50)], 6),
        ([Exited(6, 60, 9, None)], 5),
        ([Exited(5, 50, 9, None), Exited(6, 60, None, 0)], None),
        ([Exited(5, 50, 9, None), ExitConfirmed(6, 60, None, 0)], None),
        ([ExitConfirmed(5, 50, 9, None), Released(6, 60)], None),
    ],
)
def test_a_closed_launcher_says_how_each_process_ended(said: list[Any], open_: int | None) -> None:
    """It, or somebody else."""
    spawned = [(None, Spawned(6, 60), 0), (None, Spawned(5, 50), 0)]
    ends = recorded("supervisor", 1, *((None, what, 0) for what in said))
    text = f"history/launcher-h-1-10.jsonl is closed, and does not say how process {open_} ended"
    words = [] if open_ is None else [text]
    assert lacks(recorded("launcher", 1, *spawned, closed=True), ends, begun=None) == words
    assert lacks(recorded("launcher", 1, *spawned), ends, begun=None) == []


def test_a_clock_that_does_not_advance() -> None:
    good, bad = recorded("worker", 1, closed=True), recorded("worker", 2, advances=False)
    assert lacks(good, bad, begun=None) == ["history/worker-h-2-20.jsonl has a clock that does not advance"]
