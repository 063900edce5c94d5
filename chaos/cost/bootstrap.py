"""Confidence intervals by resampling (percentile bootstrap: B. Efron, Annals of Statistics 7, 1979). Pure, seeded.

Each sample is resampled with replacement, apart from the others; what is computed from several is computed from their
resampled means. The interval is from the 2.5th to the 97.5th percentile. It tells what so many observations leave open,
nothing of what is alike in all of them: one machine, one load, one day.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from chaos.cost.values import Estimate, Spreading

F64 = npt.NDArray[np.float64]
CONFIDENCE = 0.95
_CELLS = 2_000_000  # numbers resampled at once


class Bootstrap:
    """Draws in the order in which it is asked, so that the same questions give the same intervals for a seed."""

    def __init__(self, seed: int, resamples: int) -> None:
        self._rng, self.resamples = np.random.default_rng(seed), resamples

    def means(self, sample: Sequence[float]) -> F64:
        """float64[resamples]: the mean of each resample. The sample must not be empty."""
        values = np.asarray(sample, dtype=np.float64)
        rows = max(1, _CELLS // len(values))
        chunks = [
            values[self._rng.integers(0, len(values), (min(rows, self.resamples - begin), len(values)))].mean(axis=1)
            for begin in range(0, self.resamples, rows)
        ]
        return np.concatenate(chunks)

    def mean(self, sample: Sequence[float]) -> Estimate | None:
        """None of an empty sample."""
        if not sample:
            return None
        return estimate(float(np.mean(np.asarray(sample, dtype=np.float64))), self.means(sample), len(sample))

    def spread(self, sample: Sequence[float]) -> Spreading | None:
        """Mean, 95th percentile (of the sample itself, linearly interpolated) and the greatest."""
        mean = self.mean(sample)
        return None if mean is None else Spreading(mean, rounded(float(np.percentile(sample, 95))), max(sample))


def estimate(value: float, replicates: F64, observations: int) -> Estimate:
    """A value with the interval that its replicates give."""
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(replicates, [tail, 100 - tail])
    return Estimate(rounded(value), rounded(float(low)), rounded(float(high)), observations)


def rounded(value: float) -> float:
    """Nine significant digits: enough for any use, and the same on every machine."""
    return float(f"{value:.9g}")
