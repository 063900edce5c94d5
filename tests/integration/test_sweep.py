"""A small sweep on a real Ray: each trial strikes, is valid and costs what was said before it began."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from chaos.errors import SweepError
from chaos.experiment import packaged_experiment, parse_experiment
from chaos.interrupts import Interrupts
from chaos.life import Place, cpus_of
from chaos.sweep.command import Choice, Watch, sweep_in
from chaos.sweep.conduct import Conductor, Task
from chaos.sweep.jobs import conduct_all
from chaos.sweep.predict import Prediction
from chaos.sweep.results import Result
from chaos.sweep.trials import Trial

EXPERIMENT = packaged_experiment("sweep.yaml")
POINTS = ("shard.half", "optimizer.after", "publish.after", "data.read", "recover.loaded")
CHOICE = Choice(points=POINTS, sample=6, seed=127)  # one at each of the points, and one more
ONE_RANK = (
    "run: {workload: tiny, seed: 3, ranks: 1, standbys: 0, global_batch: 8, microbatches: 2, steps: 9, save_every: 3}"
)


def test_a_sample_of_kills_is_valid_predicted_and_remembered(place: Place, tmp_path: Path) -> None:
    swept = sweep_in(place, EXPERIMENT, tmp_path, CHOICE, 60.0, Watch())
    summary = swept.summary
    assert summary.verdict == "valid", summary.failing
    assert (summary.struck, summary.enumerated, summary.missed) == (6, 6, 0)
    assert {trial.where[0] for trial in swept.trials} == set(POINTS)
    assert swept.possible > 400
    assert summary.exact > 0
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    said = [line["prediction"] for line in lines if "prediction" in line]
    came = [line["result"]["trial"] for line in lines if "result" in line]
    assert sorted(said) == sorted(came)
    assert not list((tmp_path / "trials").iterdir())  # nothing failed

    began: list[tuple[int, int]] = []
    conducted: list[object] = []
    again = Watch(begin=lambda total, done: began.append((total, done)), trial=conducted.append)
    assert sweep_in(place, EXPERIMENT, tmp_path, CHOICE, 60.0, again).summary == summary
    assert (began, conducted) == ([(6, 6)], [])  # it goes on where it stopped: at the end


def test_a_choice_that_leaves_nothing_is_an_error(place: Place, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="no trial is left"):
        sweep_in(place, EXPERIMENT, tmp_path, Choice(points=("user.nowhere",)), 60.0, Watch())


def test_jobs_share_a_ray_and_their_results_come_back_here(cluster: str, tmp_path: Path) -> None:
    trials = [committer_killed("publish.after", hit) for hit in (1, 2, 3)]
    under_way: set[str] = set()
    most: list[int] = []
    results: list[Result] = []

    def began(trial: Trial) -> None:
        under_way.add(trial.name)
        most.append(len(under_way))

    def ended(result: Result) -> None:
        under_way.remove(result.trial)
        results.append(result)

    experiment = parse_experiment(ONE_RANK, tmp_path / "experiment.yaml")
    with Interrupts() as interrupts, Place(interrupts, reuse=True) as place:
        place.enter(cpus_of(experiment.run), fork_workers=True)
        conduct_all(Conductor(experiment, tmp_path, place, 60.0), 2, map(Task, trials), began, ended)
    assert [result for result in results if not result.good] == []
    assert (sorted(result.trial for result in results), max(most)) == (sorted(trial.name for trial in trials), 2)
    assert not list((tmp_path / "trials").iterdir())
    assert not [child for child in psutil.Process().children() if "chaos.sweep.job" in " ".join(child.cmdline())]


def committer_killed(point: str, save: int) -> Trial:
    """When it has published checkpoint number `save`, which is that of step 3 · save."""
    fault = {"kind": "sigkill", "at": {"attempt": 0, "role": "committer", "point": point, "hit": save}}
    return Trial(f"committer/{point}/{save}", (fault,), (Prediction((3 * save,), (3 * save, 9)),))
