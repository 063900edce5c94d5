"""What a soak draws, and what it takes for a leak; its runs on Ray are `killpoint soak`'s own affair."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from rich.console import Console

from chaos.experiment import packaged_experiment, parse_experiment
from chaos.sweep.command import Choice, Swept
from chaos.sweep.report import render_soak
from chaos.sweep.results import Ending, Result
from chaos.sweep.soak import KILLS_A_RUN, Footprint, Soaked, _shared, _slope, draw
from chaos.sweep.summary import Pace, summarize

RUN = packaged_experiment("soak.yaml").run
BEFORE = Footprint(3, 20, frozenset({"old"}), 1 << 20)


def soaked(verdict: str, after: Footprint) -> Soaked:
    swept: Any = SimpleNamespace(summary=SimpleNamespace(verdict=verdict))
    return Soaked(swept, 7, 1, BEFORE, after, 0.0)


def test_so_many_kills_are_drawn_one_an_attempt_and_each_run_can_be_read() -> None:
    trials = list(draw(RUN, 12, 1))
    assert [len(trial.faults) for trial in trials] == [KILLS_A_RUN, KILLS_A_RUN, 2]
    assert len({trial.name for trial in trials}) == 3
    for trial in trials:
        assert [fault["at"]["attempt"] for fault in trial.faults] == list(range(len(trial.faults)))
        text = yaml.safe_dump({"run": RUN.model_dump(mode="json"), "faults": list(trial.faults)})
        assert len(parse_experiment(text).faults) == len(trial.faults) < RUN.max_attempts
    assert {fault["at"]["role"] for trial in draw(RUN, 60, 1) for fault in trial.faults} == {"rank", "committer"}
    assert trials == list(draw(RUN, 12, 1)) != list(draw(RUN, 12, 2))


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"processes": 5}, "2 processes left"),
        ({"shared": frozenset({"old", "a", "b"})}, "2 files in shared memory left: a and b"),
    ],
)
def test_what_is_left_behind_makes_a_valid_soak_invalid(left: dict[str, Any], words: str) -> None:
    after = replace(BEFORE, **left)
    assert soaked("valid", after).leaks == [words]
    assert [soaked(verdict, after).verdict for verdict in ("valid", "unknown")] == ["invalid", "unknown"]
    assert soaked("valid", BEFORE).verdict == "valid"


def test_what_is_left_behind_is_said_beside_the_verdict() -> None:
    trials = tuple(draw(RUN, 1, 1))
    result = Result("soak/0", "", "rank", 0, Ending.VALID, 1, 1, None, (), 1.0)
    results = {"soak/0": result}
    swept = Swept(trials, results, summarize(trials, results), Pace(1, 2.0), 1, Choice())
    after = replace(BEFORE, shared=BEFORE.shared | {"sem.x"})
    console = Console(width=120, file=io.StringIO(), color_system=None)
    found = Soaked(swept, 7, 1, BEFORE, after, 0.0)
    assert (found.to_json()["seed"], found.to_json()["after"]["shared"]) == (7, ["old", "sem.x"])
    console.print(render_soak(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "files in shared memory  1 before, 2 after" in text
    assert text.endswith("  left behind: 1 file in shared memory left: sem.x\nverdict: invalid\n")


def test_files_in_shared_memory_are_this_users_own_and_no_folders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("nowhere")
    (tmp_path / "file").touch()
    assert _shared(tmp_path) == {"file"}
    assert _shared(tmp_path / "none") == frozenset()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    assert _shared(tmp_path) == frozenset()


_HOLD = """
import sys
from pathlib import Path
from chaos.audit.read_files import mapped
held = open(sys.argv[1]), mapped(Path(sys.argv[2]))  # the second has no descriptor
print("holding", flush=True)
sys.stdin.read()
"""


@contextmanager
def orphan(*files: Path, **environ: str) -> Iterator[None]:
    """A process that holds the files, and that this one has not started, as far as can be seen."""
    adopted = ["sh", "-c", 'exec 3<&0; "$@" <&3 3<&- &', "sh", sys.executable, "-c", _HOLD, *map(str, files)]
    environ = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **environ}
    with subprocess.Popen(adopted, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environ, text=True) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        assert shell.stdout.readline() == "holding\n"
        assert shell.wait() == 0
        yield
        shell.stdin.close()
        assert not shell.stdout.read()  # it has ended


def test_a_new_file_is_left_behind_unless_it_is_gone_or_another_program_holds_it(tmp_path: Path) -> None:
    held, mapped, own, nobodys = (tmp_path / name for name in ("held", "mapped", "own", "nobodys"))
    for file in (held, mapped, own, nobodys):
        file.write_bytes(b"x")
    after = replace(BEFORE, shared=frozenset({"old", "held", "mapped", "own", "nobodys", "gone"}))
    with orphan(held, mapped), open(own):
        assert after.since(BEFORE, tmp_path).shared == {"old", "own", "nobodys"}
    assert after.since(BEFORE, tmp_path).shared == after.shared - {"gone"}


def test_what_a_soak_started_is_its_own_even_if_somebody_else_has_adopted_it(tmp_path: Path) -> None:
    held, mapped = tmp_path / "held", tmp_path / "mapped"
    for file in (held, mapped):
        file.write_bytes(b"x")
    after = replace(BEFORE, shared=frozenset({"old", "held", "mapped"}))
    before = Footprint.now()
    with orphan(held, mapped, KILLPOINT_SOAK=str(os.getpid())):
        assert after.since(BEFORE, tmp_path).shared == after.shared
        assert Footprint.now().processes == before.processes + 1
    assert Footprint.now().processes == before.processes


def test_handles_are_judged_by_their_growth() -> None:
    more = replace(BEFORE, handles=31)
    assert soaked("valid", more).verdict == "valid"
    growing = replace(soaked("valid", more), handles_a_run=5.0)
    assert (growing.verdict, growing.leaks) == ("invalid", ["5.00 more file handles a run"])


def test_memory_that_grows_over_many_runs_is_a_leak() -> None:
    growing = replace(soaked("valid", BEFORE), growth_bytes_a_run=100 * 1024, runs=50)
    assert (growing.verdict, growing.leaks) == ("invalid", ["100.0 KiB more memory a run"])
    assert replace(growing, runs=49).verdict == "valid"
    assert replace(growing, growth_bytes_a_run=60 * 1024).verdict == "valid"


def test_the_growth_of_memory_is_a_slope() -> None:
    assert _slope([10, 13, 16, 19]) == pytest.approx(3.0)
    assert _slope([7]) == _slope([5, 5, 5]) == 0.0
