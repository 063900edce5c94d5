"""How long a real Chromium takes to open the page of a long run, and how large that page is.

python tests/bench/bench_page.py [--steps 20000] [--kills 200] [--rounds 5]: one line of JSON; the time is the median.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / name) for name in ("page", "audit")]

from chromium import started  # noqa: E402
from large_run import large  # noqa: E402

from chaos.page.document import document  # noqa: E402


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, started() as browser:
        path = Path(folder) / "report.html"
        begun = time.perf_counter()
        path.write_text(document([large(Path(folder) / "run", given.steps, given.kills)]))
        written_s = time.perf_counter() - begun
        opened_s = statistics.median(browser.open(path) for _ in range(given.rounds))
        print(json.dumps({
            "bench": "page", "steps": given.steps, "kills": given.kills, "page_bytes": path.stat().st_size,
            "opened_s": round(opened_s, 3), "rounds": given.rounds, "run_and_page_written_s": round(written_s, 1),
            "console": browser.said(),
        }))  # fmt: skip


if __name__ == "__main__":
    main()
