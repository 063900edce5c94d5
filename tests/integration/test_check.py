"""A project of somebody else's, whose own pytest run holds its trainer to this: it passes, and with a bug it fails."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from xml.etree import ElementTree

import pytest
from run_kit import command
from test_own_workload import example

TESTS = "from importlib.util import find_spec\n\n\ndef test_it_is_there():\n    assert find_spec('workload')\n"
# Every forward pass counts, and no checkpoint knows: whoever takes a dead rank's place counts from nothing.
RIGHT = "    predicted = model(batch"
WRONG = "    global passes\n    passes += 1\n    predicted = passes ** 0.01 * model(batch"
FORGETFUL = "class Forgetful(torch.optim.AdamW):\n    def load_state_dict(self, state):\n        pass\n\n\ndef loss"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The README's example with tests of its own, one rank and fewer steps."""
    (tmp_path / "workload.py").write_text(example("workload.py"))
    experiment = example("experiment.yaml").replace("steps: 40", "steps: 14").replace("rank: 1", "rank: 0")
    (tmp_path / "experiment.yaml").write_text(experiment.replace("ranks: 2", "ranks: 1, standbys: 0"))
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_workload.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\npythonpath = .\naddopts = --strict-markers --strict-config\n")
    return tmp_path


def pytest_there(project: Path, cluster: str, *more: str) -> subprocess.CompletedProcess[str]:
    options = ["--killpoint", "experiment.yaml", "--killpoint-point", "user.predicted", "-v", *more]
    if not entry_points(group="pytest11", name="killpoint"):  # an installation older than the plugin
        options = ["-p", "chaos.pytest_plugin", *options]
    environ = {**os.environ, "RAY_ADDRESS": cluster, "CI": "true", "PYTEST_ADDOPTS": ""}
    command = [sys.executable, "-m", "pytest", *options]
    return subprocess.run(command, cwd=project, env=environ, capture_output=True, text=True, timeout=170, check=False)


def test_a_correct_trainer_passes(cluster: str, project: Path) -> None:
    done = pytest_there(project, cluster)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "experiment.yaml::killpoint PASSED" in done.stdout
    assert "2 passed" in done.stdout
    assert not list((project / ".pytest_cache" / "d" / "killpoint").iterdir())


def test_one_with_a_bug_fails_with_a_witness_and_a_line_that_shows_it_again(
    cluster: str, project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (project / "workload.py").read_text().replace(RIGHT, WRONG)
    (project / "workload.py").write_text(text.replace("\n\n\ndef loss", "\npasses = 0\n\n\ndef loss"))
    done = pytest_there(project, cluster, "-x")
    assert done.returncode == 1, done.stdout + done.stderr
    assert "1 failed, 1 passed" in done.stdout
    assert re.search(r"invalid: 5 same trajectory: .*loss", done.stdout)
    assert "Traceback" not in done.stdout
    (line,) = set(re.findall(r"reproduce: killpoint (run .*)", done.stdout))  # pytest says it twice where $CI is set
    again = command(capfd, *shlex.split(line), "--output", project / "again", "--json", "--quiet")
    verdict = json.loads(again.stdout)
    assert (again.returncode, verdict["verdict"]) == (1, "invalid"), again.stderr
    assert [each["id"] for each in verdict["invariants"] if each["verdict"] == "invalid"] == [5]
    assert all(fault["receipt"] and fault["observed"] for fault in verdict["faults"])


@pytest.mark.usefixtures("cluster")
def test_a_trainer_that_does_not_survive_the_first_kill_is_invalid_at_once(
    project: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    text = (project / "workload.py").read_text().replace("torch.optim.AdamW(model", "Forgetful(model")
    (project / "workload.py").write_text(text.replace("def loss", FORGETFUL, 1))
    (project / "experiment.yaml").write_text(
        'run: {workload: "workload.py:build", config: {lr: 0.01}, ranks: 1, global_batch: 16, microbatches: 2, '
        "steps: 8, save_every: 3, standbys: 0}\n"
    )
    files = ("--output", project / "check", "--junit", project / "junit.xml")
    done = command(capfd, "check", project / "experiment.yaml", "--json", "--quiet", *files)
    found = json.loads(done.stdout)
    assert (done.returncode, found["verdict"]) == (1, "invalid"), done.stderr
    (failing,) = found["failing"]
    assert failing["trial"] == "rank0/gate:save.done/1"
    assert "4 one moment: " in failing["why"]
    assert Path(shlex.split(failing["reproduce"])[2]).is_file()
    (suite,) = ElementTree.parse(project / "junit.xml").getroot()
    assert [case.get("name") for case in suite.iter("testcase") if case.find("failure") is not None] == [
        failing["trial"]
    ]
