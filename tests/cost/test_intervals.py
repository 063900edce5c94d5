"""From runs, kills and costs to rows, a recommendation and the report; and the files that they are kept in."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from io import StringIO
from pathlib import Path

import numpy as np
import pytest
from cost_kit import Simulated, kills_of
from rich.console import Console
from typer.testing import CliRunner

from chaos.cli import app
from chaos.cost.command import evaluate, reproduce_command, verdict_of
from chaos.cost.files import JOURNAL, Journal, read_result, write_result
from chaos.cost.measure import costs_of
from chaos.cost.plan import Pace, Planned, even, steps_needed
from chaos.cost.predict import Setting, at_random, met
from chaos.cost.report import _interval, render
from chaos.cost.values import FORMAT, Asked, Costs, Estimate, Intervals, Kill, Run
from chaos.errors import IntervalsError
from chaos.experiment import packaged_experiment

EXPERIMENT = packaged_experiment("default.yaml")
EVERY = (1, 5, 10)
ASKED = Asked(EVERY, 8, "even", 0, 600.0, None, None, 400)


def setting(every: int) -> Setting:
    return Setting(every, steps_needed(EVERY, 20), 2, 4, 16)


def measured() -> tuple[list[Run], list[Kill], dict[str, Costs]]:
    """As a whole study leaves it; the histories are simulated: a step 0.1 s, a copy 4 ms, published after 40 ms."""
    runs, kills, costs = [], [], {}
    for every in EVERY:
        of, name = setting(every), f"every{every}-undisturbed"
        runs.append(Run(name, every, name, 0, "valid", "", 3.0))
        costs[name] = costs_of(Simulated(every, of.steps).run([]))
        for number, run in enumerate(even(of, Pace(0.1, 0.04, 0.3), ASKED.kills, 0)):
            name = f"every{every}-kills-{number}"
            runs.append(Run(name, every, name, len(run), "valid", "", 9.0))
            costs[name] = costs_of(Simulated(every, of.steps).run(kills_of(run, of)))
            kills += [_measured(every, name, kill, costs[name]) for kill in run]
    return runs, kills, costs


def _measured(every: int, run: str, kill: Planned, costs: Costs) -> Kill:
    recovery = costs.recoveries[kill.attempt]
    return Kill(every, run, kill.attempt, kill.rank, kill.where, kill.save, kill.phase_steps, kill.expected, recovery,
                met(kill.expected, recovery))  # fmt: skip


RUNS, KILLS, COSTS = measured()


def result(asked: Asked = ASKED, complete: bool = True) -> Intervals:
    return evaluate(EXPERIMENT, asked, setting(1), RUNS, KILLS, COSTS, complete)


RESULT = result()


def test_everything_as_expected_is_valid() -> None:
    assert (RESULT.verdict, RESULT.complete, RESULT.format) == ("valid", True, FORMAT)
    assert [row.kills for row in RESULT.rows] == [8, 8, 8]
    assert [(row.met, row.exact, row.missed) for row in RESULT.rows] == [(8, 8, 0)] * 3


def test_rows_have_the_costs_that_went_in() -> None:
    _one, five, ten = RESULT.rows
    for row in (five, ten):
        assert row.step_s is not None
        assert row.step_s.value == pytest.approx(0.1)
        assert row.stall_s is not None
        assert row.stall_s.value == pytest.approx(0.004)
        assert row.background_s is not None
        assert row.background_s.value == pytest.approx(0.04)
        assert row.save_s is not None
        assert row.save_s.value == pytest.approx(0.004)  # nothing is slower beside a save here
        assert row.overhead is not None
        assert row.overhead.value == pytest.approx(0.004 / (row.every * 0.1))
        assert row.save_bytes is not None
        assert row.save_bytes.value == 1000
    parts = {each.name: each.seconds.value for each in five.parts}
    assert parts["join"] == pytest.approx(0.015)
    assert parts["unexplained"] == pytest.approx(0.002)
    assert five.unexplained is not None
    assert five.unexplained.value == pytest.approx(0.002 / 0.292, rel=0.1)


def test_redo_of_a_row_is_that_of_its_kills() -> None:
    for row in RESULT.rows:
        own = [kill.recovery.redo_steps for kill in KILLS if kill.every == row.every and kill.recovery is not None]
        assert row.redo_steps is not None
        assert row.redo_steps.mean.value == pytest.approx(np.mean([each for each in own if each is not None]))
        assert row.redo_steps.worst == max(each for each in own if each is not None)
        assert row.redo_steps.mean.observations == 8


def test_goodput_follows_from_the_row() -> None:
    row = RESULT.rows[1]
    assert row.lost_s is not None
    assert row.downtime_s is not None
    assert row.goodput is not None
    expected = 0.5 / 0.504 * (1 - (row.lost_s.mean.value + row.downtime_s.mean.value) / 600)
    assert row.goodput.value == pytest.approx(expected, rel=1e-3)
    assert row.goodput.low <= row.goodput.value <= row.goodput.high


def test_without_a_recovery_a_save_has_its_cost_and_no_goodput() -> None:
    undisturbed = [run for run in RUNS if not run.kills]
    row = evaluate(EXPERIMENT, ASKED, setting(1), undisturbed, [], COSTS, False).rows[1]
    assert row.save_s is not None
    assert row.save_s.value == pytest.approx(0.004)
    assert (row.goodput, row.kills) == (None, 0)
    assert row.overhead is not None


def test_recoveries_whose_parts_leave_much_unexplained_are_counted() -> None:
    assert KILLS[0].recovery is not None
    vague = replace(KILLS[0], recovery=replace(KILLS[0].recovery, unexplained_s=0.06, whole_s=1.0))
    found = evaluate(EXPERIMENT, ASKED, setting(1), RUNS, [vague, *KILLS[1:]], COSTS, True)
    assert f"in 1 of {len(KILLS)} recoveries the parts leave more than 5 % of the whole unexplained" in found.notes


def test_how_well_the_clocks_of_hosts_compare_is_said() -> None:
    assert KILLS[0].recovery is not None
    far = replace(KILLS[0], recovery=replace(KILLS[0].recovery, uncertainty_s=0.00125))
    found = evaluate(EXPERIMENT, ASKED, setting(1), RUNS, [*KILLS[1:], far], COSTS, True)
    assert any("what lies between two hosts is known to ±1.2 ms" in note for note in found.notes)
    assert not any("hosts" in note for note in RESULT.notes)


def test_where_every_step_had_a_save_beside_it_nobody_can_tell_what_it_costs() -> None:
    words = "every step had a save in flight"
    beside = {name: replace(each, steps=tuple(replace(step, in_flight=0.1) for step in each.steps))
              for name, each in COSTS.items()}  # fmt: skip
    found = evaluate(EXPERIMENT, ASKED, setting(1), RUNS, KILLS, beside, True)
    assert any(words in note for note in found.notes)
    assert found.rows[1].contention_s is None
    assert not any(words in note for note in RESULT.notes)


def test_slower_steps_beside_a_save_are_a_cost_of_the_save() -> None:
    name = "every5-undisturbed"
    slower = replace(COSTS[name], steps=tuple(
        replace(step, duration_s=step.duration_s + 0.02 if step.in_flight else step.duration_s)
        for step in COSTS[name].steps
    ))  # fmt: skip
    row = evaluate(EXPERIMENT, ASKED, setting(1), RUNS, KILLS, {**COSTS, name: slower}, True).rows[1]
    assert row.contention_s is not None
    assert row.contention_s.value == pytest.approx(0.02)
    assert row.save_s is not None
    assert row.save_s.value == pytest.approx(0.024)


def test_an_interval_beyond_what_can_be_is_said_to_be_noise() -> None:
    words = "every 5: what a save costs, or goodput, reaches beyond what can be"
    name = "every5-undisturbed"
    quicker = replace(COSTS[name], steps=tuple(
        replace(step, duration_s=step.duration_s - 0.02 if step.in_flight else step.duration_s)
        for step in COSTS[name].steps
    ))  # fmt: skip
    found = evaluate(EXPERIMENT, ASKED, setting(1), RUNS, KILLS, {**COSTS, name: quicker}, True)
    save_s = found.rows[1].save_s
    assert save_s is not None
    assert save_s.low < 0
    assert any(words in note for note in found.notes)
    assert not any("beyond what can be" in note for note in RESULT.notes)
    whose = "the goodput of the recommendation is of the costs of all rows together"
    assert any(whose in note for note in RESULT.notes)
    undisturbed = [run for run in RUNS if not run.kills]
    without = evaluate(EXPERIMENT, ASKED, setting(1), undisturbed, [], COSTS, False)
    assert not any(whose in note for note in without.notes)


def test_the_recommendation_is_where_the_model_has_its_best() -> None:
    found = RESULT.recommendation
    assert found is not None
    assert found.every.low <= found.every.value <= found.every.high
    assert (found.bound_by, found.limit, found.tried) == ("goodput", None, (1, 10))
    young, daly = found.formulas
    assert young.interval_s.value == pytest.approx((2 * found.save_s.value * 600) ** 0.5)
    assert young.every.value == round(young.interval_s.value / found.step_s.value)
    assert daly.interval_s.value == pytest.approx(young.interval_s.value, rel=0.02)
    assert found.every.value == pytest.approx(young.every.value, rel=0.05)  # quick saves: all of them agree
    goodputs = {point.every: point.goodput for point in found.curve}
    assert found.goodput.value >= max(goodputs.values()) - 1e-12
    assert any("rests on the model alone" in note for note in RESULT.notes)


@pytest.mark.parametrize(
    ("limits", "value"), [({"max_redo_steps": 8}, 7), ({"max_redo_s": 0.655}, 6), ({"max_redo_steps": 0}, 0)]
)
def test_a_limit_on_lost_work_bounds_it(limits: dict[str, float], value: int) -> None:
    found = result(replace(ASKED, **limits)).recommendation
    assert found is not None
    assert found.limit is not None
    assert (found.limit.value, found.bound_by) == (value, "limit")
    assert found.every.value == max(1, value)
    assert found.unlimited.value > found.every.value
    assert RESULT.recommendation is not None
    assert found.unlimited.value == RESULT.recommendation.every.value


def test_a_generous_limit_changes_nothing() -> None:
    found = result(replace(ASKED, max_redo_steps=100_000)).recommendation
    assert found is not None
    assert RESULT.recommendation is not None
    assert (found.every.value, found.bound_by) == (RESULT.recommendation.every.value, "goodput")
    assert found.limit is not None
    assert 95_000 < found.limit.value < 100_000


def test_the_seed_decides_the_intervals_and_nothing_else() -> None:
    again, other = result(), result(replace(ASKED, seed=5))
    assert again == RESULT
    assert [row.redo_steps and row.redo_steps.mean.value for row in other.rows] == [
        row.redo_steps and row.redo_steps.mean.value for row in RESULT.rows
    ]
    assert other.rows != RESULT.rows


def test_what_is_wrong_with_one_run_or_kill_decides() -> None:
    assert verdict_of(RUNS, [replace(KILLS[0], met=False), *KILLS[1:]], True) == "invalid"
    assert verdict_of(RUNS, [replace(KILLS[0], met=None, recovery=None), *KILLS[1:]], True) == "unknown"
    assert verdict_of([replace(RUNS[0], verdict="invalid"), *RUNS[1:]], KILLS, True) == "invalid"
    assert verdict_of([replace(RUNS[0], verdict="unknown"), *RUNS[1:]], KILLS, True) == "unknown"
    assert verdict_of(RUNS, KILLS, False) == "unknown"
    assert verdict_of(RUNS, [], True) == "unknown"
    assert verdict_of(RUNS, KILLS, True) == "valid"


def test_what_is_not_valid_is_not_measured() -> None:
    runs = [replace(run, verdict="unknown") if run.every == 5 and run.kills == 0 else run for run in RUNS]
    row = evaluate(EXPERIMENT, ASKED, setting(1), runs, KILLS, COSTS, True).rows[1]
    assert row.step_s is None
    assert row.contention_s is None


def test_with_nothing_done_there_is_nothing_to_say() -> None:
    empty = evaluate(EXPERIMENT, ASKED, setting(1), [], [], {}, False)
    assert (empty.verdict, empty.recommendation) == ("unknown", None)
    assert all(row.goodput is None and row.redo_steps is None for row in empty.rows)
    assert "–" in shown(empty)


def shown(found: Intervals, width: int = 400) -> str:
    console = Console(file=StringIO(), width=width, color_system=None)
    console.print(render(found, Path("out/intervals.json")))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_report_says_every_number_with_its_observations() -> None:
    text = shown(result(replace(ASKED, max_redo_steps=8)))
    for part in ("Saves", "Redo", "Recovery, seconds by part", "Goodput", "Young", "Daly", "limit 8 steps",
                 "8 (8 exact), 0 not", "a failure every 600 s", "every 7 steps [7, 7]", "verdict: valid"):  # fmt: skip
        assert part in text, part
    assert "every: 5" in shown(RESULT, 60)  # too narrow for a table: blocks


def test_the_report_shows_what_failed() -> None:
    bad = evaluate(EXPERIMENT, ASKED, setting(1), [replace(RUNS[0], verdict="invalid", why="3 no gaps: w"), *RUNS[1:]],
                   [replace(KILLS[0], met=False), *KILLS[1:]], COSTS, False)  # fmt: skip
    text = shown(bad)
    assert "every1-undisturbed: invalid: 3 no gaps: w" in text
    assert f"{KILLS[0].run}, attempt 0: expected" in text
    assert "Not all runs are done." in text
    assert text.rstrip().endswith("verdict: invalid")


def test_the_file_comes_back_as_it_was(tmp_path: Path) -> None:
    path = write_result(tmp_path, RESULT)
    assert read_result(tmp_path) == read_result(path) == RESULT
    with pytest.raises(IntervalsError, match="cannot be read: No such file"):
        read_result(tmp_path / "nothing")
    assert json.loads(path.read_text())["recommendation"]["every"]["observations"] > 0


@pytest.mark.parametrize("text", ["", "{}", '{"format": "killpoint.intervals/1"}', "[]"])
def test_a_file_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "intervals.json").write_text(text)
    with pytest.raises(IntervalsError, match=r"intervals\.json"):
        read_result(tmp_path)


def test_the_journal_goes_on(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "out", {"seed": 1, "every": [1, 5]})
    journal.expect("a", [KILLS[0].expected, at_random(setting(5))])
    journal.add(RUNS[0])
    with (tmp_path / "out" / JOURNAL).open("a") as file:
        file.write('{"run": {"name": "torn')
    again = Journal(tmp_path / "out", {"seed": 1, "every": [1, 5]})
    assert again.runs == {RUNS[0].name: RUNS[0]}
    assert again.expected == {"a": (KILLS[0].expected, at_random(setting(5)))}
    before = (tmp_path / "out" / JOURNAL).read_text()
    again.expect("a", [KILLS[0].expected, at_random(setting(5))])  # said once
    assert (tmp_path / "out" / JOURNAL).read_text() == before
    with pytest.raises(IntervalsError, match="expected of a is not what its plan says"):
        again.expect("a", [])


@pytest.mark.parametrize(("line", "words"), [('{"garb', "line 2 is damaged"), ("[]", "line 2 is damaged"), (
    '{"run": {"name": "x", "verdict": "bogus"}}', "line 2 is damaged")])
def test_a_damaged_line_of_the_journal_is_named(tmp_path: Path, line: str, words: str) -> None:
    journal = Journal(tmp_path, {"seed": 1})
    journal.add(RUNS[0])
    first, second = journal.path.read_text().splitlines()
    journal.path.write_text(f"{first}\n{line}\n{second}\n")
    with pytest.raises(IntervalsError, match=words):
        Journal(tmp_path, {"seed": 1})


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    Journal(tmp_path / "out", {"seed": 1})
    with pytest.raises(IntervalsError, match="begun with another"):
        Journal(tmp_path / "out", {"seed": 2})
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "precious").write_text("")
    with pytest.raises(IntervalsError, match="not empty"):
        Journal(tmp_path / "other", {"seed": 1})


def test_one_observation_has_no_interval() -> None:
    assert _interval(Estimate(1.5, 1.0, 2.0, 2), 1, 1) == "1.5 [1.0, 2.0]"
    assert _interval(Estimate(1.5, 1.5, 1.5, 1), 1, 1) == "1.5 [–]"


def test_the_command_that_does_it_again() -> None:
    asked = replace(ASKED, max_redo_s=2.5, max_redo_steps=8, seed=3)
    assert reproduce_command(EXPERIMENT, asked) == (
        "killpoint intervals --every 1,5,10 --kills 8 --spread even --seed 3 --mtbf-s 600 --max-redo-s 2.5 "
        "--max-redo-steps 8"
    )


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--every", "1,two"], "whole numbers"), (["--spread", "wide"], "even or exponential"),
        (["--every", "0,5"], "at least 1"), (["--every", "5,5"], "different"), (["--kills", "0"], "--kills"),
        (["--mtbf-s", "inf"], "needs a number of seconds"),
    ],
)  # fmt: skip
def test_what_cannot_be_asked_for_is_refused_before_anything_starts(
    arguments: list[str], says: str, tmp_path: Path
) -> None:
    done = CliRunner().invoke(app, ["intervals", "--output", str(tmp_path / "out"), *arguments])
    assert done.exit_code == 2
    assert says in " ".join(done.output.split())
    assert not (tmp_path / "out").exists()


def test_asdict_is_json() -> None:
    assert json.loads(json.dumps(asdict(RESULT)))["verdict"] == "valid"
