"""The command line: exit status, what is on standard output, errors of one or two lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import chaos_kit
import pytest
from typer.testing import CliRunner, Result

import chaos.cli
from chaos.cli import app, default_output
from chaos.experiment import load_experiment
from chaos.points import CATALOGUE

ROOT = Path(__file__).resolve().parents[2]
EXPERIMENT = """\
run: {workload: tiny, ranks: 2, global_batch: 16, microbatches: 2, steps: 10, save_every: 4, twin: false}
"""


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "e.yaml").write_text(EXPERIMENT)
    with chaos_kit.uninstalled():
        yield


def killpoint(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


@pytest.mark.parametrize(("verdict", "status"), [("valid", 0), ("invalid", 1), ("unknown", 2)])
def test_the_verdict_is_the_exit_status(verdict: str, status: int) -> None:
    chaos_kit.install("finish", verdict)
    ran = killpoint("run", "e.yaml", "--output", "out")
    assert ran.exit_code == status
    assert f"verdict: {verdict}" in ran.stdout
    audited = killpoint("audit", "out")
    assert audited.exit_code == status


def test_json_is_all_there_is_on_standard_output() -> None:
    chaos_kit.install()
    ran = killpoint("run", "e.yaml", "--output", "out", "--json")
    assert json.loads(ran.stdout) == chaos_kit.verdict_json()
    assert json.loads(killpoint("audit", "out", "--json").stdout) == chaos_kit.verdict_json()


def test_an_error_does_not_send_what_it_found_to_the_terminal() -> None:
    ran = killpoint("audit", "no\x1b[2Jrun")
    assert "no\\x1b[2Jrun: is no run" in ran.stderr
    assert "\x1b" not in ran.stderr


def test_progress_goes_to_standard_error_unless_quiet() -> None:
    chaos_kit.install()
    loud = killpoint("run", "e.yaml", "--output", "loud")
    assert "attempt 0: rank 1 (pid 4242) actor died" in loud.stderr
    assert "actor died" not in loud.stdout
    assert loud.stderr.startswith(f"starting; the run is in {Path('loud').resolve()}\n")
    assert killpoint("run", "e.yaml", "--output", "quiet", "--quiet").stderr == f"{chaos_kit.NOISE}\n"
    assert killpoint("audit", "quiet", "--quiet").exit_code == 0


def test_without_output_the_run_goes_below_runs() -> None:
    chaos_kit.install()
    assert killpoint("run", "e.yaml").exit_code == 0
    (folder,) = Path("runs").iterdir()
    assert folder.name.endswith("Z-tiny")
    assert (folder / "verdict.json").is_file()
    assert default_output(load_experiment(None), datetime(2026, 3, 4, 5, 6, 7, tzinfo=UTC)) == Path(
        "runs/20260304T050607Z-bytelm"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["run", "none.yaml"], "killpoint: none.yaml: cannot be read: No such file or directory\n"),
        (["run", "e.yaml", "--output", "."], "exists already and was left as it is"),
        (["run", "--resume", "none"], "none: is no run"),
        (["run", "e.yaml", "--resume", "out"], "--resume"),
        (["run", "--seed", "-1"], "--seed"),
        (["run", "--seed", "99999999999999999999"], "--seed"),
        (["run", "--output", "e.yaml/out"], "e.yaml/out: cannot be created: "),
        (["run", "--output", "/proc/out"], "killpoint: /proc/out: cannot be created: "),
        (["audit", "none"], "killpoint: none: is no run: it has neither history/ nor store/\n"),
        (["audit"], "RUN"),
        (["points", "e.yaml"], "--record"),
        (["nonsense"], "nonsense"),
    ],
)
def test_wrong_usage_ends_with_two(arguments: list[str], message: str) -> None:
    result = killpoint(*arguments)
    assert result.exit_code == 2
    assert message in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_a_wrong_experiment_is_one_line_with_file_line_and_field() -> None:
    Path("e.yaml").write_text(EXPERIMENT + "faults:\n  - at: {rank: 0, point: shard.hlf}\n")
    result = killpoint("run", "e.yaml")
    assert result.exit_code == 2
    assert result.stderr == (
        "killpoint: e.yaml:3: faults[0].at.point: there is no kill point 'shard.hlf'; "
        "the nearest is shard.half\n"
    )
    assert not Path("runs").exists()


def test_training_that_fails_says_why_and_ends_with_two() -> None:
    chaos_kit.install("give-up")
    result = killpoint("run", "e.yaml", "--quiet")
    assert result.exit_code == 2
    assert result.stderr == f"{chaos_kit.NOISE}\nkillpoint: attempt 8 died too: raise max_attempts\n"


def test_a_defect_is_no_verdict() -> None:
    chaos_kit.install("crash")
    result = killpoint("run", "e.yaml", "--quiet")
    assert result.exit_code == 2
    assert "ZeroDivisionError: a defect" in result.stderr
    assert "this is a defect of killpoint, not a verdict" in result.stderr


def test_points_lists_the_catalogue() -> None:
    listed = killpoint("points")
    assert listed.exit_code == 0
    assert all(name in listed.stdout for name in CATALOGUE)
    points = json.loads(killpoint("points", "--json").stdout)
    assert [point["name"] for point in points] == list(CATALOGUE)
    assert points[0]["roles"] == ["rank"]
    assert all(point["in_flight"] for point in points)


def test_points_record_of_a_run_that_fails() -> None:
    chaos_kit.install("give-up")
    result = killpoint("points", "e.yaml", "--record", "--quiet")
    assert result.exit_code == 2
    assert "a run that is to show what there is to sweep" in result.stderr
    assert "attempt 8 died too" in result.stderr


def test_points_record_overwrites_nothing(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    result = killpoint("points", "e.yaml", "--record", "--output", "out")
    assert result.exit_code == 2
    assert "out: exists already and was left as it is" in result.stderr
    assert list((tmp_path / "out").iterdir()) == []


def test_version() -> None:
    result = killpoint("version")
    assert result.exit_code == 0
    assert result.stdout.startswith("killpoint 0.")
    _, release, digest = result.stdout.split()
    assert json.loads(killpoint("version", "--json").stdout) == {"version": release, "code_digest": digest}
    assert killpoint("--version").stdout == f"killpoint {release}\n"


@pytest.mark.parametrize("command", ["run", "audit", "points", "version"])
def test_help_has_the_exit_statuses_and_an_example(command: str) -> None:
    words = " ".join(killpoint(command, "--help").stdout.split())
    assert f"Example: killpoint {command} " in words
    assert "Exit status: 0" in words


def test_every_line_of_an_error_says_whose_it_is_and_a_value_has_one_line() -> None:
    Path("e.yaml").write_text("run: {workload: tiny, config: {lr: [1]}, steps: none}\n")
    assert killpoint("run", "e.yaml").stderr.splitlines() == [
        "killpoint: e.yaml:1: run.config.lr: must be a number, a string, a boolean or null, not [1]",
        "killpoint: e.yaml:1: run.steps: input should be a valid integer, not 'none'",
    ]


def test_a_mistake_in_the_workload_is_one_line_and_leaves_nothing() -> None:
    Path("e.yaml").write_text("run: {workload: 'nowhere.py:build'}\n")
    result = killpoint("run", "e.yaml")
    assert result.exit_code == 2
    assert len(result.stderr.splitlines()) == 1
    assert result.stderr.startswith("killpoint: e.yaml:1: run.workload: there is no file ")
    assert result.stdout == ""
    assert not Path("runs").exists()


def test_resuming_a_finished_run_judges_it() -> None:
    chaos_kit.install()
    killpoint("run", "e.yaml", "--output", "out")
    chaos_kit.install("finish", "invalid")
    resumed = killpoint("run", "--resume", "out")
    assert resumed.exit_code == 1
    assert "out: has reached its target already, so it is only judged" in resumed.stderr
    assert "verdict: invalid" in resumed.stdout


def test_an_interrupt_before_training_says_where_the_run_is() -> None:
    chaos_kit.install("interrupted", "unknown", early=True)
    result = killpoint("run", "e.yaml", "--output", "an out")
    assert result.exit_code == 2
    folder = Path("an out").resolve()
    assert f"go on with: killpoint run --resume '{folder}'" in result.stderr
    assert result.stdout == f"run: {folder}\nverdict: unknown\n"


def test_the_entry_point_turns_an_interrupt_into_two(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chaos.cli, "app", interrupted)
    with pytest.raises(SystemExit) as caught:
        chaos.cli.main()
    assert caught.value.code == 2


@pytest.mark.parametrize("arguments", [["audit", "none"], ["points"], ["version"], ["run", "none.yaml"]])
def test_no_command_imports_ray_or_torch_before_it_trains(arguments: list[str], tmp_path: Path) -> None:
    code = (
        "import sys; from chaos.cli import main\n"
        "try: main()\n"
        "except SystemExit: pass\n"
        "print({'ray', 'torch'} & sys.modules.keys(), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.stderr.splitlines()[-1] == "set()"
