"""Where kills are put: over the whole interval, each with an exact prediction, in runs that are long enough."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
import yaml
from cost_kit import Kill, Simulated, kills_of

from chaos.cost.forecast import Forecast
from chaos.cost.measure import costs_of
from chaos.cost.plan import KILLS_A_RUN, Pace, Planned, PlannedRun, even, exponential, steps_needed, trained_steps
from chaos.cost.predict import Setting, at_random, met
from chaos.cost.values import Asked, Run
from chaos.experiment import packaged_experiment, parse_experiment

EVERY = (1, 2, 5, 10, 20, 50)
STEPS = steps_needed(EVERY, 60)
PACE = Pace(step_s=0.25, background_s=0.1, settle_s=3.0)


def setting(every: int) -> Setting:
    return Setting(every, STEPS, 2, 4, 16)


def simulated(run: tuple[Planned, ...], of: Setting) -> list[bool]:
    """Whether each of the run's kills costs what was said, in a history that knows no formula."""
    recoveries = costs_of(Simulated(of.every, of.steps).run(kills_of(run, of))).recoveries
    return [met(kill.expected, each) for kill, each in zip(run, recoveries, strict=True)]


def test_runs_hold_two_of_the_longest_interval() -> None:
    assert (STEPS, steps_needed((1, 3), 60), steps_needed((4,), 5)) == (110, 60, 10)


@pytest.mark.parametrize("every", EVERY)
def test_every_kill_is_exact_and_comes_as_it_was_said(every: int) -> None:
    runs = even(setting(every), PACE, 30, seed=1)
    assert sum(map(len, runs)) == 30
    for run in runs:
        assert 0 < len(run) <= KILLS_A_RUN
        assert [kill.attempt for kill in run] == list(range(len(run)))
        assert all(kill.expected.exact and kill.expected.restored_step[0] > 0 for kill in run)
        assert all(simulated(run, setting(every)))
        assert sum(trained_steps(run, setting(every))) >= STEPS


def test_no_kill_strikes_before_its_attempt_has_finished_a_step() -> None:
    for seed in range(8):
        for run in even(setting(20), replace(PACE, background_s=0.0), 60, seed):
            assert min(kill.fault["at"]["hit"] for kill in run) > 4


@pytest.mark.parametrize("every", [5, 20, 50])
def test_kills_cover_the_interval_evenly(every: int) -> None:
    phases = sorted(kill.phase_steps or 0.0 for run in even(setting(every), PACE, 20, seed=3) for kill in run)
    share = every / 20
    for index, phase in enumerate(phases):
        assert index * share <= phase <= (index + 1) * share + 0.5  # up to a microbatch or two
    redo = [kill.expected.redo_steps[0] for run in even(setting(every), PACE, 20, seed=3) for kill in run]
    assert max(redo) >= every - share - 1
    assert min(redo) == 0 or every == 50


def test_saves_are_held_in_flight_as_often_as_they_would_be() -> None:
    slow = replace(PACE, background_s=2 * PACE.step_s)
    held = Counter(kill.save.split(" ")[0] for run in even(setting(10), slow, 20, 0) for kill in run)
    assert held["save.done"] == 16
    assert held["shard.half"] + held["ledger.synced"] + held["save.reported"] == 4
    always = replace(PACE, background_s=2.0)
    assert all(kill.save and "done" not in kill.save for run in even(setting(2), always, 9, 0) for kill in run)


def test_between_kills_a_new_standby_has_time_to_get_warm() -> None:
    for run in even(setting(1), PACE, 20, 0):
        assert min(list(trained_steps(run, setting(1)))[:-1]) >= 0.5 * PACE.settle_s / PACE.step_s
    hurried = even(setting(1), replace(PACE, settle_s=0.0), 20, 0)
    assert len(hurried) < len(even(setting(1), PACE, 20, 0))


def test_a_run_too_short_for_a_phase_is_struck_as_late_as_it_can_be() -> None:
    short = Setting(10, steps_needed((10,), 1), 2, 4, 16)
    runs = even(short, replace(PACE, background_s=10.0), 10, seed=2)  # behind the second save, which is in flight
    assert sum(map(len, runs)) == 10
    assert all(all(simulated(run, short)) for run in runs)
    assert {kill.expected.restored_step for run in runs for kill in run} == {(10, 10)}
    assert {kill.expected.redo_steps[0] for run in runs for kill in run} == {10, 11}


def test_of_random_kills_only_the_end_is_known() -> None:
    (run, *_) = exponential(setting(20), PACE, 8, 1)
    assert list(trained_steps(run, setting(20))) == [STEPS]


def test_the_order_is_drawn_from_the_seed() -> None:
    assert even(setting(20), PACE, 8, 1) == even(setting(20), PACE, 8, 1) != even(setting(20), PACE, 8, 2)
    assert exponential(setting(20), PACE, 8, 1) == exponential(setting(20), PACE, 8, 1)
    assert exponential(setting(20), PACE, 8, 1) != exponential(setting(20), PACE, 8, 2)


@pytest.mark.parametrize("spread", [even, exponential])
def test_an_experiment_file_may_hold_them(spread: Any) -> None:
    settings = yaml.safe_load(packaged_experiment("default.yaml").text)["run"]
    for every in EVERY:
        for run in spread(setting(every), PACE, 12, 0):
            more = {"steps": STEPS, "save_every": every, "max_attempts": len(run) + 2}
            text = yaml.safe_dump({"run": settings | more, "faults": [kill.fault for kill in run]})
            assert len(parse_experiment(text).faults) == len(run)


def test_random_kills_strike_before_the_run_can_be_over() -> None:
    times = []
    for every in EVERY:
        for run in exponential(setting(every), PACE, 40, 5):
            began = 0
            for kill in run:
                after_s = kill.fault["at"]["after_s"]
                times.append(after_s / (every * PACE.step_s))
                done = began + after_s / (0.6 * PACE.step_s)
                assert done < STEPS
                began = int(done) // every * every
                assert kill.expected == at_random(setting(every))
    assert sum(times) / len(times) == pytest.approx(1.0, abs=0.25)  # the mean is one interval


@pytest.mark.parametrize("every", [1, 3, 5])
def test_the_bounds_of_random_kills_hold_whatever_the_save_does(every: int) -> None:
    of = Setting(every, 20, 2, 4, 16)
    for finished in range(2 * every, 19):
        for published in (True, False):
            (one,) = costs_of(Simulated(every, 20).run([Kill(finished, 2, published)])).recoveries
            assert met(at_random(of), replace(one, redo_microbatches=None))
            assert not met(at_random(of), replace(one, redo_steps=2 * every + 1))
        if finished % every == 0:  # the worst: the last save waits for the one before
            worst = Kill(finished, 0, published=False, waiting=True)
            (one,) = costs_of(Simulated(every, 20).run([worst])).recoveries
            assert one.redo_steps == 2 * every
            assert met(at_random(of), one)
    assert not at_random(of).exact


def test_what_is_left_is_foretold_from_what_was_done() -> None:
    forecast = Forecast(Asked((5, 10), 4, "even", 0, 1e4, None, None, 100), 30, twin=True)
    assert forecast.left_s(()) is None
    forecast.note(Run("every5-undisturbed", 5, "f", 0, "valid", "", 15.0))  # half a second a step
    first = forecast.left_s({"every5-undisturbed"})
    assert first is not None
    # The other undisturbed run, the twin, two runs with eight kills and what these do again.
    assert first == pytest.approx(15 + 15 + 30 + 8 * 1.5, rel=0.6)
    forecast.note(Run("every10-undisturbed", 10, "f", 0, "valid", "", 15.0))
    second = forecast.left_s({"every5-undisturbed", "every10-undisturbed"})
    assert second == pytest.approx(first - 15)


def test_what_is_left_of_random_kills_is_half_an_interval_each() -> None:
    forecast = Forecast(Asked((5, 10), 4, "exponential", 0, 1e4, None, None, 100), 300, twin=True)
    assert forecast.total == 2 + 2
    undisturbed = {"every5-undisturbed", "every10-undisturbed"}
    forecast.note(Run("every5-undisturbed", 5, "f", 0, "valid", "", 150.0))
    # The twin and a run of each interval: half a second a step, and what four kills each cost and do again.
    assert forecast.left_s(undisturbed) == pytest.approx((300 + 300 + 4 * 2.5 + 300 + 4 * 5) / 2 + 8 * 1.5)
    kills = {every: exponential(Setting(every, 300, 1, 1, 1), PACE, 4, 0)[0] for every in (5, 10)}
    forecast.plans = [PlannedRun(f"every{every}-kills-0", every, kills[every]) for every in kills]
    forecast.note(Run("every5-kills-0", 5, "f", 4, "valid", "", (300 + 4 * 2.5) / 2 + 4 * 1.5))
    half = forecast.left_s({*undisturbed, "every5-kills-0"})
    assert half == pytest.approx((300 + 4 * 5) / 2 + 4 * 1.5)  # the twin was trained beside the first of them
