"""What the commands of sweeps, soaks and checks say when they are interrupted. The rest of them needs a Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner

import chaos.check.command
import chaos.sweep.command
import chaos.sweep.soak
from chaos.cli import app


@pytest.mark.parametrize(
    ("module", "name", "hint"),
    [
        (chaos.sweep.command, "sweep", "the same command goes on with: --output {}"),
        (chaos.sweep.soak, "soak", "the same command goes on with: --output {}"),
        (chaos.check.command, "check", "a check does not go on; what was done is shown by: killpoint report {}"),
    ],
)
@pytest.mark.parametrize("quiet", [(), ("--quiet",)])
def test_an_interrupt_says_where_what_was_done_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: Any, name: str, hint: str, quiet: tuple[str, ...]
) -> None:
    def interrupted(*asked: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(module, name, interrupted)
    (tmp_path / "experiment.yaml").write_text("run: {workload: tiny}\n")
    folder = tmp_path / "a folder"
    done = CliRunner().invoke(app, [name, str(tmp_path / "experiment.yaml"), "--output", str(folder), *quiet])
    assert done.exit_code == 2
    assert "Traceback" not in done.stderr
    said = hint.format(f"'{folder}'")
    assert done.stderr.endswith(f"killpoint: interrupted; {said}\n")


def test_the_junit_file_of_an_interrupted_check_says_that_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*asked: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(chaos.check.command, "check", interrupted)
    (tmp_path / "experiment.yaml").write_text("run: {workload: tiny}\n")
    report = tmp_path / "j.xml"
    CliRunner().invoke(app, ["check", str(tmp_path / "experiment.yaml"), "--junit", str(report)])
    (error,) = ElementTree.parse(report).getroot().iter("error")
    assert str(error.get("message")).startswith("interrupted; a check does not go on")
