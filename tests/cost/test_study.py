"""What a study runs, in which order, and how it goes on; its runs are trained in virtual time (`cost_kit`)."""

from __future__ import annotations

import signal
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from cost_kit import Kill, Simulated, written

from chaos.cost.command import intervals_in
from chaos.cost.files import Journal, read_result
from chaos.cost.study import Study, Watch
from chaos.cost.values import Asked, Run
from chaos.errors import IntervalsError
from chaos.experiment import Experiment, parse_experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.run import Outcome

TEXT = "run: {workload: tiny, seed: 3, ranks: 2, global_batch: 16, microbatches: 4, steps: 20, twin: true}"
ASKED = Asked((2, 5), 4, "even", 1, 600.0, None, None, 300)
VALID = {"verdict": "valid", "invariants": []}
WRONG = {"verdict": "invalid", "invariants": [
    {"id": 1, "name": "atomic", "verdict": "valid", "witness": ""},
    {"id": 3, "name": "no gaps, no duplicates", "verdict": "invalid", "witness": "sample 7 is missing"},
    {"id": 10, "name": "no vacuous pass", "verdict": "unknown", "witness": "f0 did not fire"},
]}  # fmt: skip


@dataclass
class Ray:
    """In its place: `run_experiment` as the study calls it, which writes what such a run would record.

    answers: by name of the run, what it ends with instead, once each.
    """

    experiments: list[tuple[str, Experiment]] = field(default_factory=list)
    answers: dict[str, list[dict[str, Any]]] = field(default_factory=dict)

    def run(self, experiment: Experiment, folder: Path, *, notify: Callable[[Any], None], place: Place) -> Outcome:
        assert not folder.exists()
        self.experiments.append((folder.name, experiment))
        run, kills, began = experiment.run, [], 0
        for fault in experiment.faults:
            assert fault.hit is not None
            done = fault.hit - 1
            finished, partial = began + done // run.microbatches, done % run.microbatches + 1
            published = fault.gate is None or fault.gate.point == "save.done"
            kills.append(Kill(finished, partial, published, fault.rank or 0))
            began = finished // run.save_every * run.save_every - (0 if published else run.save_every)
        written(Simulated(run.save_every, run.steps, run.ranks, run.microbatches, run.global_batch).run(kills), folder)
        (folder / "store").mkdir()
        notify(folder.name)
        answer = {"verdict": VALID, "failure": None, "interrupted": None}
        return Outcome(folder, **{**answer, **(self.answers.get(folder.name) or [{}]).pop(0)})


@pytest.fixture
def ray(monkeypatch: pytest.MonkeyPatch) -> Ray:
    found = Ray()
    monkeypatch.setattr("chaos.cost.study.run_experiment", found.run)
    return found


def study(folder: Path, text: str = TEXT, asked: Asked = ASKED, watch: Watch | None = None) -> Study:
    place = Place(Interrupts(), reuse=True)
    return Study(parse_experiment(text), folder, asked, place, watch or Watch(), Journal(folder, {"asked": asked.seed}))


def test_undisturbed_runs_come_first_and_place_the_kills(tmp_path: Path, ray: Ray) -> None:
    told: list[Any] = []
    watch = Watch(lambda total, done: told.append((total, done)), lambda name, kills: told.append((name, kills)),
                  told.append, lambda run, left_s: told.append((run.verdict, left_s is not None)))  # fmt: skip
    mine = study(tmp_path / "out", watch=watch)
    mine.conduct()
    names = [name for name, _ in ray.experiments]
    assert names[:2] == ["every2-undisturbed", "every5-undisturbed"]
    assert all("-kills-" in name for name in names[2:])
    with_kills = [experiment for _, experiment in ray.experiments[2:]]
    assert sum(len(experiment.faults) for experiment in with_kills) == len(mine.kills()) == 8
    for name, experiment in ray.experiments:
        assert (experiment.run.steps, experiment.run.save_every) == (20, int(name.removeprefix("every")[0]))
        assert experiment.run.twin == bool(experiment.faults)  # an undisturbed one needs none
    assert all(each.run.max_attempts >= len(each.faults) + 2 for each in with_kills)
    # A step takes 0.1 s: a gate may be held for four intervals, and ten seconds.
    assert {(each.run.save_every, each.run.hang_deadline_s) for each in with_kills} == {(2, 10.8), (5, 12.0)}
    assert all(kill.met and kill.recovery is not None for kill in mine.kills())
    assert [kill.recovery.attempt for kill in mine.kills() if kill.recovery] == [k.attempt + 1 for k in mine.kills()]
    assert not (tmp_path / "out" / names[-1] / "store").exists()
    assert told[0] == (2 + len(with_kills), 0)
    assert told[1:4] == [("every2-undisturbed", 0), "every2-undisturbed", ("valid", True)]
    assert told[7] == (len(names), 2)
    assert told[-1] == ("valid", True)


def test_what_is_in_the_journal_is_not_done_again(tmp_path: Path, ray: Ray) -> None:
    ray.answers["every2-kills-0"] = [{"interrupted": signal.SIGINT}]
    cut = study(tmp_path / "out")
    with pytest.raises(KeyboardInterrupt):
        cut.conduct()
    assert list(cut.journal.runs) == ["every2-undisturbed", "every5-undisturbed"]
    assert {kill.recovery for kill in cut.kills()} == {None}
    assert {kill.met for kill in cut.kills()} == {None}
    before = [name for name, _ in ray.experiments]
    again = study(tmp_path / "out")
    again.conduct()
    assert [name for name, _ in ray.experiments[len(before):]] == [plan.name for plan in again.plans]
    assert all(kill.met for kill in again.kills())
    assert [kill.expected for kill in again.kills()] == [kill.expected for kill in cut.kills()]


def test_a_run_that_is_not_valid_says_why_and_is_not_measured(tmp_path: Path, ray: Ray) -> None:
    ray.answers["every5-undisturbed"] = [{"verdict": WRONG, "failure": "gave up after 3 attempts\nmore"}]
    mine = study(tmp_path / "out")
    mine.conduct()
    found = mine.journal.runs["every5-undisturbed"]
    assert found.verdict == "invalid"
    assert found.why == ("gave up after 3 attempts; 3 no gaps, no duplicates: sample 7 is missing; "
                         "10 no vacuous pass: f0 did not fire")  # fmt: skip
    assert list(mine.costs) == ["every2-undisturbed"]
    assert len(ray.experiments) == 2  # nothing is killed where not even that is valid
    assert mine.kills() == ()
    assert (tmp_path / "out" / "every5-undisturbed" / "store").exists()  # to be looked at


OWN = """
def build(config):
    raise AssertionError("nothing is trained here")
"""


@pytest.mark.parametrize(("own", "runs"), [(True, 2), (False, 1)])
def test_a_workload_of_the_users_own_is_given_processes_of_its_own(
    tmp_path: Path, ray: Ray, own: bool, runs: int
) -> None:
    """What it kept in its modules may be why a run is not valid that took up the processes of another."""
    (tmp_path / "mine.py").write_text(OWN)
    text = TEXT.replace("workload: tiny", f"workload: '{tmp_path / 'mine.py'}:build'") if own else TEXT
    ray.answers["every2-undisturbed"] = [{"verdict": WRONG}, {}]
    mine = study(tmp_path / "out", text)
    mine.conduct()
    assert [name for name, _ in ray.experiments].count("every2-undisturbed") == runs
    assert mine.journal.runs["every2-undisturbed"].verdict == ("valid" if own else "invalid")
    assert mine.place.reuse != own


def test_where_no_step_was_seen_no_kill_can_be_placed(tmp_path: Path, ray: Ray) -> None:
    mine = study(tmp_path / "out")
    mine.conduct()
    folder = tmp_path / "out" / "every5-undisturbed"
    for path in (folder / "history").glob("worker-*"):
        path.unlink()
    again = study(tmp_path / "out")
    with pytest.raises(IntervalsError, match=r"every 5: the undisturbed run showed no step.*every5-undisturbed"):
        again.conduct()


def test_random_kills_and_no_standby_to_wait_for(tmp_path: Path, ray: Ray) -> None:
    """Of such a run the simulation knows nothing: it is planned, and in the journal."""
    text = TEXT.replace("twin: true", "twin: true, standbys: 0")
    mine = study(tmp_path / "out", text, Asked((5,), 3, "exponential", 1, 600.0, None, None, 300))
    for name in ("every5-undisturbed", "every5-kills-0", "every5-kills-1", "every5-kills-2"):
        mine.journal.add(Run(name, 5, name, 0, "valid", "", 3.0))
        written(Simulated(5, 20, 2, 4, 16).run([]), tmp_path / "out" / name)
    mine.conduct()
    assert ray.experiments == []
    assert [kill.where.endswith("s into the attempt") for kill in mine.kills()] == [True] * 3
    assert mine.journal.expected.keys() == {plan.name for plan in mine.plans}


def test_what_an_interrupted_study_has_is_its_result(tmp_path: Path, ray: Ray) -> None:
    ray.answers["every5-kills-0"] = [{"interrupted": signal.SIGINT}]
    experiment, place = parse_experiment(TEXT), Place(Interrupts(), reuse=True)
    asked = replace(ASKED, every=(2, 5))
    cut = intervals_in(place, experiment, tmp_path / "out", asked, Watch())
    assert (cut.complete, cut.verdict, cut.runs[-1].name[:13]) == (False, "unknown", "every2-kills-")
    assert read_result(tmp_path / "out") == cut
    whole = intervals_in(place, experiment, tmp_path / "out", asked, Watch())
    assert (whole.complete, whole.verdict, whole.runs[: len(cut.runs)]) == (True, "valid", cut.runs)


def test_what_is_not_as_a_reader_would_take_it_is_noted(tmp_path: Path, ray: Ray) -> None:
    text = TEXT.replace("steps: 20", "steps: 6, save_every_microbatches: 3")
    found = intervals_in(Place(Interrupts()), parse_experiment(text), tmp_path, replace(ASKED, every=(1,)), Watch())
    notes = "\n".join(found.notes)
    assert "save_every_microbatches was left out" in notes
    assert "recoveries found no warm standby; they are in the rows" in notes
    assert all(run.verdict == "valid" for run in found.runs)


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (replace(ASKED, every=()), "--every: needs different whole numbers"),
        (replace(ASKED, every=(0, 5)), "--every: needs different whole numbers"),
        (replace(ASKED, every=(5, 5)), "--every: needs different whole numbers"),
        (replace(ASKED, kills=0), "--kills: at least 1"),
    ],
)
def test_what_cannot_be_studied_is_refused_before_anything_is_written(
    tmp_path: Path, ray: Ray, asked: Asked, words: str
) -> None:
    with pytest.raises(IntervalsError, match=words):
        intervals_in(Place(Interrupts()), parse_experiment(TEXT), tmp_path / "out", asked, Watch())
    assert not (tmp_path / "out").exists()
