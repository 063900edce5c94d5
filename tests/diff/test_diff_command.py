"""`killpoint diff`: exit status, what is on which stream, and what is no comparison at all."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from small_training import Fault, Training, continuous, recovered
from typer.testing import CliRunner, Result

from chaos.cli import app


@pytest.fixture(autouse=True)
def _in_a_folder_with_traces(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    for name, trace in {
        "same": recovered(8, 3, 5), "lost": recovered(8, 3, 5, Fault("drop-optimizer")),
        "twin": continuous(8), "longer": Training().train(3).restart(3).train(11).trace(target=11),
    }.items():  # fmt: skip
        Path(name).mkdir()
        trace.write(Path(name) / "trace.json")


def killpoint(*arguments: str) -> Result:
    return CliRunner().invoke(app, arguments)


def test_no_difference() -> None:
    result = killpoint("diff", "twin", "same/trace.json")
    assert result.exit_code == 0
    assert "10 records of B of steps 1–8 and 2 starts" in result.stdout
    assert "result: no difference" in result.stdout
    assert result.stderr == ""


def test_a_difference_is_told_whole() -> None:
    result = killpoint("diff", "twin", "lost")
    assert result.exit_code == 1
    for text in ("in what attempt 1 of B restored after step 3", "update 4 is the first one that is seen to be another",
                 "likeliest cause: optimizer history lost (optimizer)", "How update 4 then differs",
                 "result: different"):  # fmt: skip
        assert text in result.stdout, result.stdout


def test_json_is_all_there_is_on_standard_output() -> None:
    report = json.loads(killpoint("diff", "twin", "lost", "--json").stdout)
    first = report["first"]
    assert (first["attempt"], first["step"], first["where"], first["earliest_update"]) == (1, 3, "restored", 4)
    assert first["causes"][0][0]["kind"] == "optimizer history lost"
    assert first["differences"][0]["magnitude"] > 0
    assert report["metadata"].keys() == {"path"}
    assert json.loads(killpoint("diff", "twin", "same", "--json").stdout)["first"] is None


def test_another_length_says_why() -> None:
    result = killpoint("diff", "twin", "longer")
    assert result.exit_code == 1
    assert "the cumulative target 8 was read as" in " ".join(result.stdout.split())


def test_what_would_look_alike_is_named() -> None:
    for name in ("twin", "lost"):
        trace = replace(continuous(8) if name == "twin" else recovered(8, 3, 5, Fault("drop-optimizer")), starts=())
        trace = replace(trace, records=tuple(replace(r, gradient_norm=None) for r in trace.records))
        trace.write(Path(f"{name}.json"))
    shown = killpoint("diff", "twin.json", "lost.json").stdout
    assert "would look alike: partial gradients lost" in shown


@pytest.mark.parametrize(("arguments", "message"), [
    (["none", "twin"], "none: does not exist"), (["twin"], "Missing argument 'B'"),
    ([".", "twin"], "holds several traces, give one of them: longer, lost, same, twin"),
    (["empty", "twin"], "is neither a run (history/) nor a lab's folder (trace.json)"),
    (["twin", "bad.json"], "bad.json: is not a sealed file"),
    (["twin", "twin:s00000001-a0000"], "twin: is no run: it has no store/"),
    (["twin", "late.json"], "have no step in common: there is nothing to compare"),
    (["twin", "odd.json"], "loss: 'x' is no float.hex() number"),
])  # fmt: skip
def test_what_cannot_be_compared_ends_with_two(arguments: list[str], message: str) -> None:
    Path("empty").mkdir()
    Path("bad.json").write_text("{}")
    trace = continuous(8)
    late = [replace(record, step=record.step + 50) for record in trace.records]
    replace(trace, records=tuple(late), starts=()).write(Path("late.json"))
    replace(trace, records=(replace(trace.records[0], loss="x"),)).write(Path("odd.json"))
    result = killpoint("diff", *arguments)
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())
    assert "Traceback" not in result.stderr
    assert result.stdout == ""


def test_neither_ray_nor_torch_is_imported() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from chaos.cli import app\n"
         "try: app(['diff', 'twin', 'same'])\n"
         "except SystemExit as end: assert end.code == 0\n"
         "assert not {'ray', 'torch'} & sys.modules.keys()"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
