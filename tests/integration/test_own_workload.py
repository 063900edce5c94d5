"""The README's example of a user's own workload, word for word, in a folder outside of the repository."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from run_kit import command, events

README = Path(__file__).resolve().parents[2] / "README.md"


def example(name: str) -> str:
    """The code block that follows `<!-- example: NAME -->`."""
    found = re.search(rf"<!-- example: {re.escape(name)} -->\n```\w+\n(.*?)```", README.read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def test_it_is_killed_recovers_and_is_judged_valid(cluster: str, tmp_path: Path) -> None:
    for name in ("workload.py", "experiment.yaml"):
        (tmp_path / name).write_text(example(name))
    assert len(example("workload.py").splitlines()) < 40
    done = subprocess.run(
        [Path(sys.executable).parent / "killpoint", "run", "experiment.yaml", "--output", "run", "--json"],
        cwd=tmp_path, env={**os.environ, "RAY_ADDRESS": cluster}, capture_output=True, text=True, timeout=150,
        check=False,
    )
    verdict = json.loads(done.stdout)
    assert (done.returncode, verdict["verdict"]) == (0, "valid"), done.stderr
    (fault,) = verdict["faults"]
    assert fault["observed"]["pid"] == fault["receipt"]["target"]["pid"]
    assert len(events(tmp_path / "run", "supervisor", "chosen")) == 2


@pytest.mark.usefixtures("cluster")
def test_a_workload_that_breaks_the_rules_is_one_clear_line(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "workload.py").write_text("def build(config):\n    return None\n")
    (tmp_path / "experiment.yaml").write_text(
        'run: {workload: "workload.py:build", ranks: 2, global_batch: 4, microbatches: 1, steps: 4, save_every: 2}\n'
    )
    done = command(capfd, "run", tmp_path / "experiment.yaml", "--output", tmp_path / "run", "--quiet")
    assert done.returncode == 2
    assert "returned NoneType, not a Workload" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
