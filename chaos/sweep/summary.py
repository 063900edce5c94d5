"""What a sweep says as a whole. Pure: trials and results in, counts and one verdict out.

Invalid beats unknown beats valid. A cost that was not predicted is invalid: nothing explains it. A trial that did not
strike, or did not finish by its deadline, leaves the whole unknown.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.sweep.results import Ending, Result
from chaos.sweep.trials import Trial


@dataclass(frozen=True)
class Pace:
    """So many trials by the clock, `jobs` at a time."""

    trials: int
    seconds: float
    jobs: int = 1

    @property
    def trials_per_s(self) -> float:
        """0 without trials."""
        return self.trials / self.seconds if self.seconds else 0.0

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {"trials": self.trials, "seconds": round(self.seconds, 1), "jobs": self.jobs}


@dataclass(frozen=True)
class Summary:
    """Counts of trials, unless they say seconds."""

    verdict: str
    enumerated: int
    struck: int
    endings: Mapping[str, int]
    met: int
    exact: int
    missed: int
    recovery_median_s: float | None
    recovery_worst_s: float | None
    recoveries: int
    seconds: float
    failing: tuple[Result, ...]

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "verdict": self.verdict, "enumerated": self.enumerated, "fired": self.struck,
            "verdicts": dict(self.endings),
            "predictions": {"met": self.met, "exact": self.exact, "missed": self.missed},
            "recovery": {
                "observations": self.recoveries, "median_s": self.recovery_median_s, "worst_s": self.recovery_worst_s,
            },
            "seconds": round(self.seconds, 1),
            "failing": [{"trial": r.trial, "ending": r.ending.value, "why": r.why, "reproduce": r.reproduce}
                        for r in self.failing],
        }  # fmt: skip


def summarize(trials: Sequence[Trial], results: Mapping[str, Result]) -> Summary:
    """Of the trials that were asked for; one without a result has not struck."""
    done = [results[trial.name] for trial in trials if trial.name in results]
    exact = {trial.name for trial in trials if trial.predictions and all(each.exact for each in trial.predictions)}
    seconds = [each.first_step_s for result in done for each in result.recoveries if each.first_step_s is not None]
    struck = sum(1 for result in done if result.struck == result.planned)
    return Summary(
        _verdict(done, struck, len(trials)), len(trials), struck, Counter(result.ending.value for result in done),
        sum(1 for result in done if result.predicted), sum(1 for r in done if r.predicted and r.trial in exact),
        sum(1 for result in done if result.predicted is False),
        round(statistics.median(seconds), 3) if seconds else None, max(seconds, default=None), len(seconds),
        sum(result.duration_s for result in done), tuple(result for result in done if not result.good),
    )  # fmt: skip


def _verdict(done: Sequence[Result], struck: int, enumerated: int) -> str:
    if any(result.ending is Ending.INVALID or result.predicted is False for result in done):
        return "invalid"
    whole = enumerated > 0 and struck == enumerated
    return "valid" if whole and all(result.good for result in done) else "unknown"
