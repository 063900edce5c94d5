"""Reference C, by hand: 0.9, 0.71, resumed 0.7100, without the buffer 0.8."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.cli import app
from chaos.diff.trace import Trace
from chaos.labs import momentum_task


def test_the_figures(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["lab", "momentum", "--output", str(tmp_path / "out"), "--json"])
    assert ran.exit_code == 0
    report = json.loads(ran.stdout)
    assert report["all_checks_passed"]
    assert [row["p"] for row in report["records"]["uninterrupted"]] == pytest.approx([0.9, 0.71], abs=1e-15)
    assert report["resumed"] == report["uninterrupted"]
    assert f"{report['resumed']:.4f} {report['without_buffer']:.4f} {report['lost']:.4f}" == "0.7100 0.8000 0.0900"
    uninterrupted, without = (
        Trace.read(tmp_path / "out" / name / "trace.json") for name in ("uninterrupted", "without_buffer")
    )
    start, before = without.starts[0].state, uninterrupted.records[0].state
    assert {part for part, digest in start.items() if digest != before[part]} == {"optimizer"}


def test_it_is_printed(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["lab", "momentum", "--output", str(tmp_path / "out")])
    assert "uninterrupted 0.7100, resumed 0.7100; without the momentum buffer 0.8000" in ran.stdout
    again = CliRunner().invoke(app, ["lab", "momentum", "--output", str(tmp_path / "out")])
    assert again.exit_code == 2
    assert "exists already" in again.stderr


def test_a_lost_buffer_fails_the_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(momentum_task, "load_optimizer", lambda optimizer, saved: None)
    ran = CliRunner().invoke(app, ["lab", "momentum", "--output", str(tmp_path / "out"), "--json"])
    assert ran.exit_code == 1
    assert not json.loads(ran.stdout)["resumed_equals_uninterrupted"]
