"""Confidence intervals: the same for the same seed, and as wide as they have to be."""

from __future__ import annotations

import numpy as np
import pytest

from chaos.cost.bootstrap import Bootstrap, estimate


def test_the_seed_decides() -> None:
    sample = [0.1, 0.4, 0.2, 0.9, 0.3]
    first, again, other = (Bootstrap(seed, 500).mean(sample) for seed in (1, 1, 2))
    assert first == again != other


def test_what_is_asked_first_is_drawn_first() -> None:
    boot = Bootstrap(1, 500)
    first, second = boot.mean([1.0, 2.0, 4.0]), boot.mean([1.0, 2.0, 4.0])
    assert first is not None
    assert second is not None
    assert first.value == second.value
    assert (first.low, first.high) != (second.low, second.high) or first.low == 1.0


def test_of_one_observation_nothing_is_left_open_and_of_none_nothing_is_said() -> None:
    one = Bootstrap(0, 100).mean([3.0])
    assert one is not None
    assert (one.value, one.low, one.high, one.observations) == (3.0, 3.0, 3.0, 1)
    assert Bootstrap(0, 100).mean([]) is None
    assert Bootstrap(0, 100).spread([]) is None


def test_it_is_as_wide_as_theory_says() -> None:
    sample = np.random.default_rng(5).normal(10.0, 2.0, 400)
    found = Bootstrap(0, 4000).mean(sample.tolist())
    assert found is not None
    half = 1.96 * sample.std() / 20
    assert found.low == pytest.approx(sample.mean() - half, abs=0.03)
    assert found.high == pytest.approx(sample.mean() + half, abs=0.03)


def test_it_holds_the_truth_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(1), 0
    for seed in range(200):
        found = Bootstrap(seed, 300).mean(rng.exponential(1.0, 60).tolist())
        assert found is not None
        held += found.low <= 1.0 <= found.high
    assert 0.88 <= held / 200 <= 0.99


def test_large_samples_are_drawn_in_pieces() -> None:
    found = Bootstrap(0, 103).means([1.0, 3.0] * 100_000)
    assert found.shape == (103,)
    assert len(set(found.tolist())) > 90


def test_spreading() -> None:
    found = Bootstrap(0, 200).spread([float(each) for each in range(1, 101)])
    assert found is not None
    assert (found.mean.value, found.p95, found.worst, found.mean.observations) == (50.5, 95.05, 100.0, 100)


def test_the_tails_are_two_and_a_half_percent_each() -> None:
    found = estimate(0.0, np.arange(1001.0), 7)
    assert (found.low, found.high, found.observations) == (25.0, 975.0, 7)
