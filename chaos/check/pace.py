"""How far a time budget reaches: a trial is begun only if the median of its kind still fits. Pure but for the clock."""

from __future__ import annotations

import math
import re
import statistics
import time
from collections.abc import Callable, Iterable, Mapping

from chaos.errors import CheckError

PLAIN, OWN_SUPERVISOR = "plain", "own_supervisor"
_OWN_FACTOR = 10.0  # a run whose supervisor dies is two commands and a start of all processes: a first guess
_ROUND_S = 10
_UNITS_S = {"": 1.0, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}


def parse_budget(text: str) -> float:
    """Seconds of `60`, `60s`, `2m` or `1h`. Raises CheckError for anything else, and for nothing at all."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]*)", text.strip())
    seconds = float(found[1]) * _UNITS_S[found[2]] if found and found[2] in _UNITS_S else 0.0
    if not seconds:
        raise CheckError(f"--budget {text}: write seconds, minutes or hours, such as 60s, 5m or 1h")
    return seconds


class Pace:
    """Counts the time since it was made, and knows how long trials of each kind take."""

    def __init__(
        self, budget_s: float | None, known_s: Mapping[str, float], clock: Callable[[], float] = time.monotonic,
        jobs: int = 1,
    ) -> None:  # fmt: skip
        """budget_s: None for no end. known_s: medians of an earlier check, used until there are own ones.

        jobs: trials at a time.
        """
        self.budget_s, self._known_s, self._clock, self._jobs = budget_s, known_s, clock, jobs
        self._began = clock()
        self._seen_s: dict[str, list[float]] = {}

    @property
    def elapsed_s(self) -> float:
        """Since the check began."""
        return self._clock() - self._began

    def add(self, kind: str, seconds: float) -> None:
        """A trial took so long."""
        self._seen_s.setdefault(kind, []).append(seconds)

    def medians_s(self) -> dict[str, float]:
        """Of the kinds of which there were any."""
        return {kind: statistics.median(seen) for kind, seen in self._seen_s.items()}

    def expected_s(self, kind: str) -> float:
        """The median; 0 as long as nothing at all is known."""
        known = {**self._known_s, **self.medians_s()}
        if kind in known:
            return known[kind]
        if kind == OWN_SUPERVISOR:
            return _OWN_FACTOR * known.get(PLAIN, 0.0)
        return 0.0

    def fits(self, kind: str) -> bool:
        """Whether another trial of this kind is likely to end within the budget."""
        if self.budget_s is None:
            return True
        elapsed_s = self.elapsed_s
        return elapsed_s < self.budget_s and elapsed_s + self.expected_s(kind) <= self.budget_s

    def would_do_s(self, kinds: Iterable[str]) -> int:
        """The budget within which these trials would have been done too, rounded up, with a tenth to spare."""
        needed_s = 1.1 * (self.elapsed_s + sum(map(self.expected_s, kinds)) / self._jobs)
        return math.ceil(needed_s / _ROUND_S) * _ROUND_S


def kind_of(own_supervisor: bool) -> str:
    """The kinds differ several times in what they take."""
    return OWN_SUPERVISOR if own_supervisor else PLAIN
