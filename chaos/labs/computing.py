"""A fixed amount of computing, to stand for a stage that needs a core."""

from __future__ import annotations

import hashlib
import time

_WORKED_ON = bytes(1 << 18)
_PROBE = 40


def work(units: int) -> None:
    """Digests 256 KiB so many times, without Python's lock."""
    for _ in range(units):
        hashlib.sha256(_WORKED_ON).digest()


def units_for(time_s: float) -> int:
    """How many units of `work` fill `time_s` if the machine goes on as it is just now; at least 1."""
    started = time.perf_counter()
    work(_PROBE)
    return max(1, round(time_s * _PROBE / (time.perf_counter() - started)))
