"""In every Python process of a traced run: each passage of an armed process is also a write that the trace can see.

`durable.py` puts this folder first on the path. The mark comes before the passage is counted or struck at.
"""

from __future__ import annotations

import os

_MARKS = os.environ.get("KILLPOINT_TRACED_MARKS")


def _mark(who: str, point: str) -> None:
    """Opened anew each time: a forked worker closes what it has inherited."""
    marks = os.open(_MARKS or "", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(marks, f"{who} {point}\n".encode())
    finally:
        os.close(marks)


if _MARKS:
    from chaos.striker import _Armed

    _passed, _passed_at = _Armed.passed, _Armed.passed_at

    def _who(armed: _Armed) -> str:
        rank = "" if armed._rank is None else armed._rank
        return f"{armed._role.value}{rank}@{armed._attempt}"

    def passed(self: _Armed, point: str) -> None:
        _mark(_who(self), point)
        _passed(self, point)

    def passed_at(self: _Armed, point: str, hit: int) -> None:
        _mark(_who(self), point)
        _passed_at(self, point, hit)

    _Armed.passed, _Armed.passed_at = passed, passed_at  # type: ignore[method-assign]
