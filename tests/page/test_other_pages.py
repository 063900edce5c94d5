"""A sweep and a measurement of intervals on the page: what is wrong is named, and every figure can be drawn."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from chaos.cost.files import write_result
from chaos.cost.values import (
    FORMAT,
    Asked,
    Estimate,
    Expected,
    Formula,
    Intervals,
    Kill,
    PartCost,
    Point,
    Recommendation,
    Recovery,
    Row,
    Run,
    Spreading,
)
from chaos.errors import ReportError
from chaos.page.document import document, parts_of
from chaos.page.intervals_page import interval
from chaos.page.pages import IntervalsPage, SweepPage
from chaos.page.read import read_folder
from chaos.page.vega import draw_svg
from chaos.sweep.results import FORMAT as SWEEP
from chaos.sweep.results import Ending, Recovered, Result

GOOD = Result("rank0/step.begin/1", "step.begin", "rank", 0, Ending.VALID, 1, 1, True, (Recovered(3, 1, 0.2),), 1.0)


def sweep(folder: Path, *results: Result, predicted: tuple[int, int] = (1, 3)) -> SweepPage:
    lines = [{"format": SWEEP, "config": "sha256:c", "code": "sha256:d"}]
    low, high = predicted
    expected = {"restored_steps": [3], "finished_steps": [3 + low, 3 + high], "redo_steps": [low, high]}
    lines += [{"prediction": each.trial, "recoveries": [expected]} for each in results]
    lines += [{"result": asdict(each)} for each in results if each.duration_s]
    (folder / "results.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"torn')
    page = read_folder(folder)
    assert isinstance(page, SweepPage)
    return page


def trial(name: str, **change: object) -> Result:
    return replace(GOOD, trial=name, **change)  # type: ignore[arg-type]


def test_a_sweep_in_which_all_is_well(tmp_path: Path) -> None:
    page = sweep(tmp_path, GOOD, trial("rank0/step.begin/2"),
                 trial("committer/publish.before/1", point="publish.before",
                                                                    role="committer", rank=None))  # fmt: skip
    assert page.verdict == "valid"
    assert [(cell.point, cell.who, cell.trials, cell.bad) for cell in page.cells] == [
        ("step.begin", "rank 0", 2, 0), ("publish.before", "committer", 1, 0),
    ]  # fmt: skip
    assert [(row.low, row.high, row.redo_steps) for row in page.trials] == [(1, 3, 1)] * 3
    assert page.failing == ()


@pytest.mark.parametrize(
    ("change", "letter", "verdict"),
    [
        ({"ending": Ending.INVALID, "why": "a gap"}, "I", "invalid"), ({"ending": Ending.UNKNOWN}, "U", "unknown"),
        ({"ending": Ending.UNFINISHED}, "L", "unknown"), ({"struck": 0}, "N", "unknown"),
        ({"predicted": False, "recoveries": (Recovered(3, 5, 0.2),)}, "R", "invalid"),
    ],
)  # fmt: skip
def test_what_is_wrong_in_a_sweep_has_its_letter(
    tmp_path: Path, change: dict[str, object], letter: str, verdict: str
) -> None:
    page = sweep(tmp_path, GOOD, trial("rank0/step.begin/2", **change))
    assert page.verdict == verdict
    assert [(cell.trials, cell.bad, cell.letters) for cell in page.cells] == [(2, 1, letter)]
    assert [row.name for row in page.failing] == ["rank0/step.begin/2"]
    alarms = next(part.alarms for part in parts_of(page) if part.name == "map")
    assert alarms[0].startswith("rank0/step.begin/2: ")


def test_a_sweep_that_goes_on_is_not_valid_yet(tmp_path: Path) -> None:
    page = sweep(tmp_path, GOOD, trial("rank0/step.begin/2", duration_s=0.0))
    assert page.verdict == "unknown"
    assert "1 trial has no result yet" in page.sentences[-1]


def test_a_check_is_called_one_and_what_it_left_out_is_no_unfinished_sweep(tmp_path: Path) -> None:
    sweep(tmp_path, GOOD, trial("rank0/step.begin/2", duration_s=0.0))
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text().replace('"code": "sha256:d"', '"code": "sha256:d", "check": {}'))
    page = read_folder(tmp_path)
    assert page.title == f"Check {tmp_path.name}"
    assert "1 trial of those that were drawn up was not done" in page.sentences[-1]
    assert "not finished" not in page.sentences[-1]


def test_a_prediction_that_is_none_is_an_error_and_no_defect(tmp_path: Path) -> None:
    sweep(tmp_path, GOOD)
    path = tmp_path / "results.jsonl"
    path.write_text(path.read_text().replace("restored_steps", "restored"))
    with pytest.raises(ReportError, match="is no sweep's results"):
        read_folder(tmp_path)


def test_one_observation_has_no_interval() -> None:
    assert interval(estimate(2.0), 1, 1) == "2.0 [1.6, 2.6], n = 6"
    assert interval(estimate(2.0, observations=1), 1, 1) == "2.0 [–], n = 1"


def estimate(value: float, observations: int = 6) -> Estimate:
    return Estimate(value, value * 0.8, value * 1.3, observations)


def row(every: int) -> Row:
    spread = Spreading(estimate(every / 2), every * 0.9, float(every))
    parts = tuple(PartCost(name, estimate(0.02)) for name in ("detect", "load", "unexplained"))
    return Row(
        every=every, runs=2, kills=1, exact=1, met=1, missed=0, step_s=estimate(0.05), step_saving_s=None,
        stall_s=estimate(0.01), wait_s=None, background_s=None, contention_s=None, save_bytes=None,
        save_s=estimate(0.012),
        overhead=estimate(0.1 / every), redo_steps=spread, redo_samples=None, redo_s=None, lost_s=spread, parts=parts,
        whole_s=spread, downtime_s=spread, unexplained=estimate(0.03), goodput=estimate(0.9),
    )  # fmt: skip


def kill(every: int, *, met: bool = True) -> Kill:
    recovery = Recovery(1, every, None, 0.2, 0.01, 0.15, 0.4, 0.2, 0.1, 2 if met else 5, None, 32, None, 1000, "warm")
    expected = Expected((every, every), (2, 2), (32, 32), (8, 8))
    return Kill(every, f"every{every}-kills-0", 0, 1, "step.begin hit 9", "", 2.0, expected, recovery, met)


def measured(folder: Path, *kills: Kill) -> IntervalsPage:
    asked = Asked((2, 10), 1, "even", 0, 600.0, None, None, 300)
    found = Recommendation(
        estimate(8), "goodput", estimate(8), None, estimate(0.95), (Formula("Young", estimate(2.0), estimate(40)),),
        estimate(0.012), estimate(0.05), estimate(0.2), estimate(0.1), (2, 10),
        (Point(1, 0.5), Point(8, 0.95), Point(50, 0.9)),
    )  # fmt: skip
    verdict = "valid" if all(each.met for each in kills) else "invalid"
    result = Intervals(
        FORMAT, verdict, True, asked, "tiny", 2, 16, 2, 16, "sha256:c", "1", "killpoint intervals --every 2,10",
        (row(2), row(10)), found, (Run("every2-kills-0", 2, "every2-kills-0", 1, "valid", "", 3.0),), kills,
        ("a note",),
    )  # fmt: skip
    write_result(folder, result)
    page = read_folder(folder)
    assert isinstance(page, IntervalsPage)
    return page


def test_intervals_say_what_to_choose_and_how_sure_that_is(tmp_path: Path) -> None:
    page = measured(tmp_path, kill(2), kill(10))
    assert page.sentences[0] == ("Save every 8 steps (95 % interval 6 to 10): the greatest expected goodput, at a "
                                 "failure every 600 s on average.")  # fmt: skip
    assert [(each.label, each.value, each.observations) for each in page.numbers[:2]] == [
        ("Recommended interval", "8", "n = 6"), ("Young", "40", "n = 6"),
    ]  # fmt: skip
    assert all(not part.alarms for part in parts_of(page))


def test_a_missed_prediction_is_named(tmp_path: Path) -> None:
    page = measured(tmp_path, kill(2), kill(10, met=False))
    assert page.verdict == "invalid"
    alarms = [line for part in parts_of(page) for line in part.alarms]
    assert alarms == ["every10-kills-0, attempt 0, every 10 steps: not as predicted"]


def test_every_figure_can_be_drawn(tmp_path: Path) -> None:
    for name in ("sweep", "intervals"):
        (tmp_path / name).mkdir()
    pages = [sweep(tmp_path / "sweep", GOOD), measured(tmp_path / "intervals", kill(2), kill(10))]
    for page in pages:
        for part in parts_of(page):
            for figure in part.figures:
                svg = draw_svg(figure.spec)
                assert svg.count("<path") > 1, figure.name
    text = document(pages)
    assert "killpoint intervals --every 2,10" in text
    assert text.count('class="chart') == sum(len(part.figures) for page in pages for part in parts_of(page))
