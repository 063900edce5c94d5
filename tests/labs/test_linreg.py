"""Reference A to the printed digit: the snapshot, both ends, and the three faults; and what is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from chaos.cli import app
from chaos.diff.trace import Trace
from chaos.labs.files import digest_file, read_checkpoint, write_checkpoint

Body = dict[str, Any]
README = (Path(__file__).resolve().parents[2] / "chaos" / "labs" / "README.md").read_text()


def linreg(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["lab", "linreg", *map(str, arguments)])


def proof(output: Path, *arguments: object, status: int = 0) -> Body:
    ran = linreg("--steps", 80, "--output", output, "--json", *arguments)
    assert ran.exit_code == status, ran.stderr
    report: Body = json.loads(ran.stdout)
    return report


def digits(end: Body, places: int = 10) -> str:
    return f"{end['w']:.{places}f} {end['b']:.{places}f} {end['samplePosition']}"


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("linreg")
    ran = linreg("--steps", 19, "--checkpoint", folder / "snapshot.json", "--output", folder / "first")
    assert ran.exit_code == 0, ran.stderr
    return folder / "snapshot.json"


def test_resumed_is_uninterrupted(snapshot: Path, tmp_path: Path) -> None:
    report = proof(tmp_path / "out", "--resume", "--checkpoint", snapshot)
    assert digits(report["snapshot"]) == "3.3557282153 2.2900000515 12"
    assert f"{report['snapshot']['mse']:.10f}" == "0.2521643716"
    assert digits(report["uninterrupted"]) == "3.0000640811 1.9999645195 16"
    assert f"{report['uninterrupted']['mse']:.3e}" == "6.713e-09"
    assert report["resumed"] == report["uninterrupted"]
    assert (report["resumed_from"], len(report["records"]["resumed"])) == (19, 61)
    assert report["first_difference"] is None
    assert set(report["state"]) == {"parameters", "optimizer", "step", "samplePosition", "sampleOrder", "rngState"}
    assert all(field == {"deviation": 0.0, "unequal": []} for field in report["state"].values())
    ends = [(tmp_path / "out" / name / "checkpoint.json").read_bytes() for name in ("uninterrupted", "resumed")]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("fault", "step", "what", "end", "part"),
    [
        ("drop-optimizer", 20, "parameters", "3.00032245 1.99988062 16", "optimizer"),
        ("reset-cursor", 20, "sample ids", "3.00010154 1.99992488 4", "progress"),
        ("reset-rng", 21, "sample ids", "3.00007685 1.99991118 16", "rng.python"),
    ],
)
def test_every_fault_is_found_where_it_first_shows(
    snapshot: Path, tmp_path: Path, fault: str, step: int, what: str, end: str, part: str
) -> None:
    report = proof(tmp_path / "out", "--resume", "--checkpoint", snapshot, "--fault", fault, status=1)
    assert (report["first_difference"]["step"], report["first_difference"]["what"]) == (step, what)
    assert digits(report["resumed"], 8) == end
    assert report["parts_wrong_after_restore"] == [part]
    ends = report["resumed"], report["uninterrupted"]
    deviation, mse = max(abs(ends[0][name] - ends[1][name]) for name in "wb"), ends[0]["mse"] - ends[1]["mse"]
    row = f"| `lab linreg --resume --fault {fault}` | {part} | {what}, step {step} | {deviation:.2e} | {mse:+.2e} |"
    assert row in README.splitlines()
    assert report["resumed"]["mse"] < 1e-6  # a low loss proves nothing
    uninterrupted, resumed = (
        Trace.read(tmp_path / "out" / name / "trace.json") for name in ("uninterrupted", "resumed")
    )
    (start,), before = resumed.starts, uninterrupted.records[18]
    assert {name for name, digest in start.state.items() if digest != before.state[name]} == {part}
    assert start.cursor == (64 if fault == "reset-cursor" else 76)
    if fault == "reset-rng":
        assert start.state[part] == uninterrupted.starts[0].state[part]
    if fault == "drop-optimizer":
        assert set(before.values) - set(start.values) == {f"optimizer/{name}/momentum_buffer" for name in "wb"}
    assert [record.step for record in resumed.records] == list(range(20, 81))


def test_snapshot_and_command_stay_with_the_comparison(snapshot: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    ran = linreg("--resume", "--checkpoint", snapshot, "--output", out, "--fault", "reset-rng")
    assert ran.exit_code == 1
    assert "differs first in sample ids at step 21" in " ".join(ran.stdout.split())
    assert (out / "snapshot.json").read_bytes() == snapshot.read_bytes()
    assert (out / "command.txt").read_text() == (
        f"killpoint lab linreg --steps 80 --resume --checkpoint {snapshot} --output {out} --fault reset-rng\n"
    )
    assert json.loads((out / "report.json").read_text())["first_difference"]["step"] == 21


def test_without_a_checkpoint_one_is_made_at_step_19(snapshot: Path, tmp_path: Path) -> None:
    report = proof(tmp_path / "out", "--resume")
    assert report["resumed_from"] == 19
    assert read_checkpoint(tmp_path / "out" / "snapshot.json")[0] == read_checkpoint(snapshot)[0]


def test_the_fields_of_a_checkpoint(snapshot: Path) -> None:
    body = read_checkpoint(snapshot)[0]
    fields = {"parameters", "optimizer", "step", "samplePosition", "sampleOrder", "rngState", "dataset"}
    assert fields | {"format", "code", "configuration", "versions"} == body.keys()
    assert f"{body['parameters']['w']:.10f}" == "3.3557282153"


def test_nothing_is_overwritten(snapshot: Path, tmp_path: Path) -> None:
    before = snapshot.read_bytes()
    for arguments in (["--steps", 19, "--checkpoint", snapshot], ["--steps", 80, "--output", snapshot.parent]):
        ran = linreg(*arguments, *(["--output", tmp_path / "new"] if "--output" not in arguments else []))
        assert ran.exit_code == 2
        assert "exists already" in ran.stderr
    assert snapshot.read_bytes() == before
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", 80, "--fault", "reset-rng"], "needs --resume"),
        (["--steps", 19, "--resume"], "counts from the beginning"),
        (["--steps", 80, "--resume", "--fault", "nothing"], "drop-optimizer"),
    ],
)
def test_wrong_usage_ends_with_2(arguments: list[object], message: str, tmp_path: Path) -> None:
    ran = linreg(*arguments, "--output", tmp_path / "out")
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert not (tmp_path / "out").exists()


def _swap_order(body: Body) -> None:
    order = body["sampleOrder"]
    order[0], order[1] = order[1], order[0]


def _forget_b(body: Body) -> None:
    del body["optimizer"]["history"]["b"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda body: body["dataset"].update(digest="sha256:" + "0" * 64), "dataset.digest was"),
        (lambda body: body.update(code="sha256:" + "0" * 64), "code was"),
        (lambda body: body["configuration"].update(momentum=0.9), "configuration.momentum was 0.9, is 0.8"),
        (lambda body: body["versions"].update(torch="1.0.0"), "versions.torch was '1.0.0'"),
        (lambda body: body.update(format="killpoint.lab.resume/1"), "no checkpoint of this lab"),
        (lambda body: body.update(step=18), "samplePosition is not that of step 18"),
        (lambda body: body.update(samplePosition=8), "samplePosition is not that of step 19"),
        (_swap_order, "sampleOrder is not that of step 19"),
        (lambda body: body["rngState"][1].__setitem__(0, 1), "rngState is not that of step 19"),
        (lambda body: body.pop("rngState"), "does not fit"),
        (_forget_b, "no history of each parameter"),
        (lambda body: body["optimizer"].update(more=1), "once loaded"),
    ],
)
def test_a_checkpoint_of_something_else_or_of_two_moments_is_refused(
    snapshot: Path, tmp_path: Path, change: Callable[[Body], object], message: str
) -> None:
    body = read_checkpoint(snapshot)[0]
    change(body)
    write_checkpoint(tmp_path / "changed.json", body)
    ran = linreg("--resume", "--checkpoint", tmp_path / "changed.json", "--output", tmp_path / "out")
    assert ran.exit_code == 2
    assert message in ran.stderr
    assert not (tmp_path / "out").exists()


def test_a_changed_byte_is_refused(snapshot: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.json"
    copy.write_bytes(snapshot.read_bytes().replace(b"3.3557", b"3.3558"))
    digest_file(copy).write_bytes(digest_file(snapshot).read_bytes())
    ran = linreg("--resume", "--checkpoint", copy, "--output", tmp_path / "out")
    assert ran.exit_code == 2
    assert "its digest is" in ran.stderr
    digest_file(copy).unlink()
    missing = linreg("--resume", "--checkpoint", copy, "--output", tmp_path / "out")
    assert missing.exit_code == 2
    assert "copy.json.sha256: cannot be read" in missing.stderr
