"""What a kill point costs, disarmed and armed for another point: `python tests/bench/bench_point.py`.

Prints one line of JSON. A disarmed point has to stay under 100 ns. The loop's own cost is taken off.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import timeit
from pathlib import Path

from chaos.faults import Fault, FaultKind
from chaos.points import Role
from chaos.striker import Striker

CALLS = 200_000
REPEATS = 9


def call_ns(statement: str, reached: Striker | None) -> float:
    """Median nanoseconds of one execution of `statement`."""
    runs = timeit.repeat(statement, repeat=REPEATS, number=CALLS, globals={"reached": reached})
    return statistics.median(runs) / CALLS * 1e9


def main() -> None:
    """Measures and prints."""
    with tempfile.TemporaryDirectory() as folder:
        fault = Fault("f0", FaultKind.SIGKILL, 0, Role.RANK, 0, "shard.half", 1)
        reached = Striker("bench", Path(folder), (fault,))
        empty_ns = call_ns("pass", None)
        reached.enter(1, "rank", 0, None)
        disarmed_ns = call_ns("reached('microbatch.backward')", reached) - empty_ns
        reached.enter(0, "rank", 0, None)
        elsewhere_ns = call_ns("reached('microbatch.backward')", reached) - empty_ns
    print(
        json.dumps(
            {
                "bench": "point",
                "disarmed_ns": round(disarmed_ns, 1),
                "armed_elsewhere_ns": round(elsewhere_ns, 1),
                "limit_disarmed_ns": 100,
                "calls": CALLS,
                "repeats": REPEATS,
            }
        )
    )


if __name__ == "__main__":
    main()
