"""What a sweep remembers of its trials, and what it says as a whole."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from chaos.errors import ReportError, SweepError
from chaos.page.read import read_folder
from chaos.sweep.command import Choice, Swept
from chaos.sweep.conduct import Conductor, End, judged
from chaos.sweep.predict import Prediction
from chaos.sweep.report import render
from chaos.sweep.results import Ending, Journal, Recovered, Result
from chaos.sweep.summary import Pace, summarize
from chaos.sweep.trials import Trial

FAULT = {"kind": "sigkill", "at": {"attempt": 0, "role": "rank", "rank": 1, "point": "shard.half", "hit": 2}}
TRIAL = Trial("rank1/shard.half/2", (FAULT,), (Prediction((3,), (6, 9)),))
SEEN = {"receipt": {"x": 1}, "observed": {"y": 1}}
RECOVERY = {"restored_step": 3, "redo_steps": 4, "first_step_s": 0.25}
VALID: dict[str, Any] = {"verdict": "valid", "faults": [SEEN], "recoveries": [RECOVERY], "invariants": []}
GOOD = judged(TRIAL, End(VALID), 1.25)


def test_a_trial_that_is_as_it_has_to_be() -> None:
    assert Result(
        "rank1/shard.half/2", "shard.half", "rank", 1, Ending.VALID, 1, 1, True, (Recovered(3, 4, 0.25),), 1.25
    ) == GOOD  # fmt: skip
    assert GOOD.good


@pytest.mark.parametrize(
    ("change", "ending", "predicted", "says"),
    [
        ({"faults": [{**SEEN, "receipt": None}]}, Ending.VALID, True, "0 of 1 faults struck"),
        ({"faults": [{**SEEN, "observed": None}]}, Ending.VALID, True, "0 of 1 faults struck"),
        ({"faults": []}, Ending.VALID, True, "0 of 1 faults struck"),
        ({"recoveries": [{**RECOVERY, "restored_step": 6, "redo_steps": 1}]}, Ending.VALID, False, "predicted"),
        ({"recoveries": [{**RECOVERY, "redo_steps": 2}]}, Ending.VALID, False, "redone steps) [(3, 2)]"),
        ({"recoveries": []}, Ending.VALID, False, "was (restored step, redone steps) []"),
        ({"recoveries": [RECOVERY, RECOVERY]}, Ending.VALID, False, "predicted"),
        ({"recoveries": [{**RECOVERY, "redo_steps": None}]}, Ending.VALID, False, "predicted"),
        (
            {"verdict": "invalid", "invariants": [{"id": 3, "name": "no gaps", "verdict": "invalid", "witness": "w"}]},
            Ending.INVALID, None, "3 no gaps: w",
        ),
        ({"verdict": "unknown"}, Ending.UNKNOWN, None, ""),
    ],
)  # fmt: skip
def test_anything_else_is_not_good_and_says_why(
    change: dict[str, Any], ending: Ending, predicted: bool | None, says: str
) -> None:
    result = judged(TRIAL, End({**VALID, **change}), 1.0)
    assert (result.ending, result.predicted, result.good) == (ending, predicted, False)
    assert says in result.why
    summary = summarize([TRIAL], {TRIAL.name: result})
    assert summary.verdict == ("invalid" if ending is Ending.INVALID or predicted is False else "unknown")
    assert summary.failing == (result,)


def test_what_does_not_end_by_its_deadline_is_neither_valid_nor_unknown() -> None:
    result = judged(TRIAL, End({**VALID, "verdict": "unknown"}, "interrupted by SIGALRM\nmore", late=True), 60.0)
    assert (result.ending, result.why) == (Ending.UNFINISHED, "interrupted by SIGALRM")
    assert summarize([TRIAL], {TRIAL.name: result}).verdict == "unknown"


def test_the_command_that_repeats_a_trial_is_one_line(tmp_path: Path) -> None:
    """One whose supervisor dies is resumed by the same line: killed is only half of it."""
    anything: Any = None
    conductor = Conductor(anything, tmp_path / "a sweep", anything, 60.0)
    file, again = (tmp_path / "a sweep" / "trials" / f"rank1_shard.half_2.{each}" for each in ("yaml", "again"))
    assert conductor.reproduce_command(TRIAL) == f"killpoint run '{file}'"
    supervisor = replace(TRIAL, own_supervisor=True)
    line = f"killpoint run '{file}' --output '{again}'; killpoint run --resume '{again}'"
    assert conductor.reproduce_command(supervisor) == line


def test_a_trial_without_a_recovery_must_have_none() -> None:
    data = Trial("data0/data.read/1", (FAULT,), ())
    assert judged(data, End({**VALID, "recoveries": []}), 1.0).good
    assert not judged(data, End(VALID), 1.0).good


def test_of_a_killed_supervisor_nothing_is_predicted() -> None:
    trial = replace(TRIAL, predictions=None, own_supervisor=True)
    assert judged(trial, End(VALID), 1.0).good


def test_a_trial_without_a_result_leaves_the_sweep_unknown_and_none_at_all_too() -> None:
    other = replace(TRIAL, name="another")
    summary = summarize([TRIAL, other], {TRIAL.name: GOOD})
    assert (summary.verdict, summary.struck, summary.enumerated) == ("unknown", 1, 2)
    assert summarize([], {}).verdict == "unknown"
    assert summarize([TRIAL], {TRIAL.name: GOOD}).verdict == "valid"


def test_the_summary_counts() -> None:
    exact = replace(TRIAL, name="exact", predictions=(Prediction((3,), (7, 7)),))
    slow = replace(GOOD, trial="exact", recoveries=(Recovered(3, 4, 0.75),))
    found = summarize([TRIAL, exact], {TRIAL.name: GOOD, "exact": slow}).to_json()
    assert found["predictions"] == {"met": 2, "exact": 1, "missed": 0}
    assert found["recovery"] == {"observations": 2, "median_s": 0.5, "worst_s": 0.75}
    assert (found["fired"], found["enumerated"], found["verdicts"]) == (2, 2, {"valid": 2})


def test_the_journal_goes_on_where_it_stopped(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "sweep", {"seed": 1})
    journal.predict([(TRIAL.name, [each.to_json() for each in TRIAL.predictions])])
    journal.add(GOOD)
    with journal.path.open("a") as file:
        file.write('{"result": {"trial": "torn')
    again = Journal(tmp_path / "sweep", {"seed": 1})
    assert again.results == {TRIAL.name: GOOD}
    again.add(replace(GOOD, trial="next"))
    lines = [json.loads(line) for line in journal.path.read_text().splitlines()]
    assert lines[1]["prediction"] == TRIAL.name  # before its result
    assert lines[2]["result"] == json.loads(json.dumps(asdict(GOOD)))
    assert Journal(tmp_path / "sweep", {"seed": 1}).results.keys() == {TRIAL.name, "next"}


def test_the_journal_of_another_sweep_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path, {"seed": 1})
    with pytest.raises(SweepError, match="belongs to another sweep"):
        Journal(tmp_path, {"seed": 2})


def test_a_folder_with_something_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "precious.txt").write_text("")
    with pytest.raises(SweepError, match=r"is not empty and has no results\.jsonl"):
        Journal(tmp_path, {"seed": 1})
    assert (tmp_path / "clean" / "precious.txt").exists()


@pytest.mark.parametrize(
    ("line", "change"),
    [(1, {"redo_steps": [1, 2]}), (1, {"restored_steps": [6]}), (1, {"finished_steps": [8, 9]}),
     (1, {"restored_steps": []}), (2, {"predicted": False}), (2, {"recoveries": []})],
)  # fmt: skip
def test_a_result_has_to_be_what_its_prediction_says(tmp_path: Path, line: int, change: dict[str, Any]) -> None:
    journal = Journal(tmp_path, {"seed": 1})
    journal.predict([(TRIAL.name, [each.to_json() for each in TRIAL.predictions or ()])])
    journal.add(GOOD)
    lines = [json.loads(text) for text in journal.path.read_text().splitlines()]
    (lines[1]["recoveries"][0] if line == 1 else lines[2]["result"]).update(change)
    journal.path.write_text("".join(json.dumps(each) + "\n" for each in lines))
    with pytest.raises(SweepError, match=r"line 3 is damaged .*is not what its prediction says"):
        Journal(tmp_path, {"seed": 1})
    with pytest.raises(ReportError, match="is not what its prediction says"):
        read_folder(tmp_path)


def test_a_damaged_line_is_named(tmp_path: Path) -> None:
    journal = Journal(tmp_path, {"seed": 1})
    journal.add(GOOD)
    journal.path.write_text(journal.path.read_text().replace('{"result"', '{"garb", "result"'))
    with pytest.raises(SweepError, match="line 2 is damaged"):
        Journal(tmp_path, {"seed": 1})


def test_the_map_shows_each_place_and_what_is_wrong_there() -> None:
    other = replace(TRIAL, name="other")
    wrong = replace(GOOD, trial="other", ending=Ending.INVALID, why="3 no gaps: sample 7", reproduce="killpoint run x")
    committer = Trial("c", ({"kind": "sigkill", "at": {"role": "committer", "point": "publish.after", "hit": 1}},), ())
    results = {TRIAL.name: GOOD, "other": wrong}
    trials = [TRIAL, other, committer]
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(render(Swept(tuple(trials), results, summarize(trials, results), Pace(3, 6.0, 2), 3, Choice())))
    text = console.export_text()
    rows = [line.split() for line in text.splitlines()]
    assert ["point", "committer", "rank", "1"] in rows
    assert ["shard.half", "-", "1", "of", "2", "I"] in rows
    assert ["publish.after", "0", "of", "1", "N", "-"] in rows
    assert "3 trials in 6 s, 2 at a time, 0.50 a second" in text
    assert "other: invalid: 3 no gaps: sample 7" in text
    assert "killpoint run x" in text
    assert text.rstrip().endswith("verdict: invalid")
    assert "trials that there are" not in text  # all of them


@pytest.mark.parametrize(
    ("choice", "options"),
    [
        (Choice(points=("shard.half", "step.end"), ranks=(1,)), "--point shard.half --point step.end --rank 1"),
        (Choice(sample=1, seed=7), "--sample 1 --seed 7"),
        (Choice(pairs=True), "--sample 100 --seed 0"),
    ],
)
def test_what_was_left_out_is_said(choice: Choice, options: str) -> None:
    trials, results = (TRIAL,), {TRIAL.name: GOOD}
    swept = Swept(trials, results, summarize(trials, results), Pace(1, 2.0), 454, choice)
    console = Console(width=120, file=io.StringIO(), color_system=None)
    console.print(render(swept))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert ["tried", f"1 of 454 trials that there are: {options}"] in [
        [part.rstrip() for part in line.split(maxsplit=1)] for line in text.splitlines()
    ]
    assert (swept.to_json()["possible"], swept.to_json()["choice"]) == (454, asdict(choice))
