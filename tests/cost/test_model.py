"""The formulas against numbers worked out by hand, and the model against its own definition."""

from __future__ import annotations

import math

import numpy as np
import pytest

from chaos.cost import model
from chaos.cost.model import Cost


def of(step_s: float, save_s: float, background_s: float, downtime_s: float) -> Cost:
    return Cost(*(np.full((1, 1), each) for each in (step_s, save_s, background_s, downtime_s)))


COST = of(0.25, 0.5, 2.0, 1.0)


def test_young_by_hand() -> None:
    # A save of 5 minutes and a failure a day: √(2·5·1440) = √14400 = 120 minutes.
    assert model.young_s(300.0, 86400.0) == pytest.approx(7200.0)
    assert model.young_s(0.02, 10_000.0) == pytest.approx(20.0)


def test_daly_by_hand() -> None:
    # The same: C/2M = 5/2880; 120·(1 + 0.0416667/3 + 0.00173611/9) − 5 = 120 + 1.666667 + 0.023148 − 5.
    assert model.daly_s(300.0, 86400.0) == pytest.approx(60 * 116.689815, abs=1e-4)
    # C/2M = 1/8: √(2·1·4)·(1 + 0.3535534/3 + 0.125/9) − 1 = 2.8284271·1.1317400 − 1 = 2.2010441.
    assert model.daly_s(1.0, 4.0) == pytest.approx(2.8284271 * (1 + 0.3535534 / 3 + 0.0138889) - 1, abs=1e-6)


def test_daly_gives_up_where_saving_takes_longer_than_living() -> None:
    assert model.daly_s(8.0, 4.0) == 4.0
    assert model.daly_s(7.999, 4.0) == pytest.approx(math.sqrt(64) * (1 + 1 / 3 + 1 / 9) - 8, abs=1e-2)


def test_daly_is_near_the_best_interval_by_his_own_model() -> None:
    """T_wall = M·e^(R/M)·(e^((τ+C)/M) − 1)·T_s/τ (Daly 2006, equation 20), minimised by trying."""
    save, mtbf = 5.0, 200.0
    tau = np.arange(1.0, 200.0, 0.01)
    best = tau[np.argmin((np.exp((tau + save) / mtbf) - 1) / tau)]
    assert float(model.daly_s(save, mtbf)) == pytest.approx(best, rel=0.005)
    assert abs(float(model.young_s(save, mtbf)) - best) > 3 * abs(float(model.daly_s(save, mtbf)) - best)


def test_the_cycle_is_never_shorter_than_a_save_takes() -> None:
    assert model.cycle_s(COST, np.array([1, 10]))[0].tolist() == [2.0, 3.0]


def test_lost_work_by_hand() -> None:
    # Every 10 steps a cycle of 3 s: half of it, and while the save of 2 s is not published another one: 1.5 + 2.
    assert model.lost_s(COST, np.array([10]))[0, 0] == pytest.approx(3.5)
    assert model.worst_lost_s(COST, np.array([10]))[0, 0] == pytest.approx(5.0)
    assert model.worst_redo_steps(COST, np.array([1, 10]))[0].tolist() == [2.0, 18.0]


def test_lost_work_is_what_comes_out_when_a_failure_is_tried_at_every_moment() -> None:
    moments = np.arange(0.0005, 3.0, 0.001)  # of a cycle of 3 s, after a save that takes 2 s
    lost = np.where(moments < 2.0, moments + 3.0, moments)
    assert model.lost_s(COST, np.array([10]))[0, 0] == pytest.approx(lost.mean())
    assert model.worst_lost_s(COST, np.array([10]))[0, 0] == pytest.approx(lost.max(), abs=0.001)


def test_goodput_by_hand() -> None:
    # 2.5 s of steps in a cycle of 3 s; of 90 s each failure takes 1 + 3.5 s.
    good = model.expected_goodput(COST, np.array([10]), 90.0)[0, 0]
    assert good == pytest.approx(2.5 / 3 * (1 - 4.5 / 90))
    assert model.expected_goodput(COST, np.array([10]), 2.0)[0, 0] == 0.0


def test_goodput_is_what_a_simulation_of_failures_gives() -> None:
    rng, mtbf, every = np.random.default_rng(0), 400.0, 10
    useful = every * 0.25
    wall = done = 0.0
    for life in rng.exponential(mtbf, 20_000):
        cycles = life // 3.0
        published = cycles - 1 if life - cycles * 3.0 < 2.0 and cycles >= 1 else cycles
        done, wall = done + published * useful, wall + life + 1.0
    # The formula is of first order: it leaves out that a life can end before its first save.
    assert model.expected_goodput(COST, np.array([every]), mtbf)[0, 0] == pytest.approx(done / wall, rel=0.005)


def test_the_best_interval_is_the_best_and_agrees_with_young_where_saves_are_quick() -> None:
    intervals = model.grid(5000)
    quick = of(0.1, 0.05, 0.0, 1.0)
    (best,) = model.best_interval(quick, intervals, 3600.0)
    assert best == pytest.approx(float(model.young_s(0.05, 3600.0)) / 0.1, rel=0.02)
    good = model.expected_goodput(quick, intervals, 3600.0)[0]
    assert good[intervals == best] == good.max()


def test_the_grid_has_every_short_interval_and_reaches_the_end() -> None:
    found = model.grid(10_000)
    assert found[:256].tolist() == list(range(1, 257))
    assert found[-1] == 10_000
    assert float(np.max(found[256:] / found[255:-1])) < 1.02
    assert model.grid(3).tolist() == list(range(1, 257))


def test_the_longest_interval_within_limits() -> None:
    intervals = model.grid(1000)
    assert model.longest_within(COST, intervals, 5.0, None).tolist() == [10.0]
    assert model.longest_within(COST, intervals, 5.01, 17).tolist() == [9.0]
    assert model.longest_within(COST, intervals, None, 1).tolist() == [0.0]
    assert model.longest_within(COST, intervals, 3.9, None).tolist() == [0.0]  # the save itself takes 2 s, twice
