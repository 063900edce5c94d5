"""A small sweep on a real Ray: each trial strikes, is valid and costs what was said before it began."""

from __future__ import annotations

import json
from pathlib import Path

import psutil
import pytest

from chaos.errors import SweepError
from chaos.experiment import packaged_experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.sweep.command import Choice, Watch, sweep_in
from chaos.sweep.trials import Trial

EXPERIMENT = packaged_experiment("sweep.yaml")
POINTS = ("shard.half", "optimizer.after", "publish.after", "data.read", "recover.loaded")
CHOICE = Choice(points=POINTS, sample=9, seed=2)


def test_a_sample_of_kills_is_valid_predicted_and_remembered(place: Place, tmp_path: Path) -> None:
    swept = sweep_in(place, EXPERIMENT, tmp_path, CHOICE, 60.0, Watch())
    summary = swept.summary
    assert summary.verdict == "valid", summary.failing
    assert (summary.struck, summary.enumerated, summary.missed) == (9, 9, 0)
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
    assert (began, conducted) == ([(9, 9)], [])  # it goes on where it stopped: at the end


def test_a_choice_that_leaves_nothing_is_an_error(place: Place, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="no trial is left"):
        sweep_in(place, EXPERIMENT, tmp_path, Choice(points=("user.nowhere",)), 60.0, Watch())


def test_jobs_share_a_ray_and_the_results_are_those_of_one(cluster: str, tmp_path: Path) -> None:
    choice = Choice(points=("microbatch.forward",), ranks=(1,), sample=4, seed=5)
    under_way: set[str] = set()
    most: list[int] = []

    def began(trial: Trial) -> None:
        under_way.add(trial.name)
        most.append(len(under_way))

    watch = Watch(trial=began, result=lambda result: under_way.remove(result.trial))
    with Interrupts() as interrupts, Place(interrupts, reuse=True) as place:
        swept = sweep_in(place, EXPERIMENT, tmp_path, choice, 60.0, watch, jobs=2)
    assert swept.summary.verdict == "valid", swept.summary.failing
    assert (swept.summary.struck, swept.summary.missed, max(most)) == (4, 0, 2)
    lines = [json.loads(line) for line in (tmp_path / "results.jsonl").read_text().splitlines()]
    assert sorted(line["result"]["trial"] for line in lines if "result" in line) == sorted(t.name for t in swept.trials)
    assert not list((tmp_path / "trials").iterdir())
    assert not [child for child in psutil.Process().children() if "chaos.sweep.job" in " ".join(child.cmdline())]
