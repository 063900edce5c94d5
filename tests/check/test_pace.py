"""How far a budget reaches, with a clock that the test turns."""

from __future__ import annotations

import pytest

from chaos.check.pace import OWN_SUPERVISOR, PLAIN, Pace, parse_budget
from chaos.errors import CheckError


class Clock:
    now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(("text", "seconds"), [("60", 60), ("60s", 60), ("1.5m", 90), ("2 min", 120), ("1h", 3600)])
def test_a_budget_is_seconds_minutes_or_hours(text: str, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "0s", "-5s", "5d", "5 s s", "nan"])
def test_anything_else_is_an_error_that_says_what_to_write(text: str) -> None:
    with pytest.raises(CheckError, match="such as 60s"):
        parse_budget(text)


def test_a_trial_is_begun_only_if_the_median_of_its_kind_fits() -> None:
    clock = Clock()
    pace = Pace(20.0, {}, clock)
    for seconds in (1.0, 3.0, 100.0):  # the median is 3
        pace.add(PLAIN, seconds)
    clock.now_s += 17.0
    assert pace.fits(PLAIN)
    clock.now_s += 0.01
    assert not pace.fits(PLAIN)


def test_the_first_trial_is_begun_if_there_is_time_at_all() -> None:
    clock = Clock()
    pace = Pace(20.0, {}, clock)
    assert pace.fits(PLAIN)
    clock.now_s += 20.0
    assert not pace.fits(PLAIN)


def test_a_trial_with_a_supervisor_of_its_own_is_reckoned_apart() -> None:
    clock = Clock()
    pace = Pace(20.0, {}, clock)
    pace.add(PLAIN, 1.0)
    clock.now_s += 10.5
    assert pace.fits(PLAIN)
    assert not pace.fits(OWN_SUPERVISOR)  # a guess: ten times as long
    pace.add(OWN_SUPERVISOR, 9.0)
    assert pace.fits(OWN_SUPERVISOR)


def test_an_earlier_check_knows_until_there_are_own_observations() -> None:
    pace = Pace(20.0, {PLAIN: 30.0}, Clock())
    assert not pace.fits(PLAIN)
    pace.add(PLAIN, 2.0)
    assert pace.fits(PLAIN)
    assert pace.medians_s() == {PLAIN: 2.0}


def test_without_a_budget_everything_fits() -> None:
    clock = Clock()
    pace = Pace(None, {PLAIN: 5.0}, clock)
    clock.now_s += 1e6
    assert pace.fits(PLAIN)


def test_the_budget_that_would_do_is_what_is_used_and_what_is_left_with_a_tenth_to_spare() -> None:
    clock = Clock()
    pace = Pace(60.0, {}, clock)
    pace.add(PLAIN, 1.0)
    pace.add(OWN_SUPERVISOR, 8.0)
    clock.now_s += 59.0
    assert pace.would_do_s([PLAIN] * 10 + [OWN_SUPERVISOR] * 4) == 120  # 1.1 · (59 + 10 + 32) = 111.1


def test_trials_at_a_time_take_less_of_it() -> None:
    clock = Clock()
    pace = Pace(60.0, {PLAIN: 4.0}, clock, jobs=3)
    clock.now_s += 59.0
    assert pace.would_do_s([PLAIN] * 12) == 90  # 1.1 · (59 + 48 / 3) = 82.5
