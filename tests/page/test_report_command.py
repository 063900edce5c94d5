"""`killpoint report`: what it writes, what it prints, and what it refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path
from xml.etree import ElementTree

import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from chaos.cli import app


def report(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments)])


@pytest.fixture(scope="module")
def written(gap_run: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Result]:
    out = tmp_path_factory.mktemp("out")
    return out, report(gap_run, "--output", out / "a" / "page.html", "--plots", out / "plots", "--data", out / "data",
                       "--json")  # fmt: skip


def test_json_says_what_there_is(written: tuple[Path, Result], gap_run: Path) -> None:
    out, result = written
    assert result.exit_code == 0, result.output
    said = json.loads(result.stdout)
    assert said["output"] == str(out / "a" / "page.html")
    assert said["bytes"] == (out / "a" / "page.html").stat().st_size < 2_000_000
    assert [(each["folder"], each["kind"], each["verdict"]) for each in said["of"]] == [
        (str(gap_run), "run", "invalid")
    ]
    assert sorted(map(Path, said["plots"])) == sorted((out / "plots").iterdir())
    assert sorted(map(Path, said["data"])) == sorted((out / "data").iterdir())
    assert [path.name for path in (out / "a").iterdir()] == ["page.html"]  # no draft is left


def test_every_figure_is_a_file_that_stands_alone(written: tuple[Path, Result]) -> None:
    folder = written[0] / "plots"
    assert {path.stem for path in folder.glob("*.svg")} == {"timeline", "ledger", "lineage", "recoveries"}
    for path in folder.glob("*.svg"):
        text = path.read_text()
        root = ElementTree.fromstring(text)
        assert "var(" not in text
        defined = {each.get("id") for each in root.iter() if each.get("id")}
        assert set(re.findall(r"url\(#([^)]+)\)", text)) <= defined
        png = path.with_suffix(".png").read_bytes()
        assert png.startswith(b"\x89PNG")
        assert int.from_bytes(png[16:20], "big") > 1200


def test_the_data_is_that_of_the_figures(written: tuple[Path, Result]) -> None:
    folder = written[0] / "data"
    steps = pq.read_table(folder / "steps.parquet").to_pylist()
    assert len(steps) == 30
    assert sum(row["redone"] for row in steps) == 6
    (fault,) = pq.read_table(folder / "ledger_faults.parquet").to_pylist()
    assert (fault["fate"], fault["first"], fault["low"], fault["high"]) == ("gap", 5, 1, 2)
    recoveries = pq.read_table(folder / "recoveries.parquet").to_pylist()
    assert [(row["attempt"], row["redo_steps"]) for row in recoveries] == [(1, 1), (2, 2)]
    assert all(row["detect_s"] > 0 for row in recoveries)


def test_the_terminal_tells_the_same_story(good_run: Path) -> None:
    result = report(good_run, "--quiet")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("valid  run-1: It came back as if nothing had happened\n")
    assert re.search(r"^Trained again +3 steps  in 2 recoveries", result.stdout, re.MULTILINE)
    assert f"page: {good_run}/report.html (" in result.stdout
    assert (good_run / "report.html").is_file()


def test_several_folders_make_one_page_and_no_file_covers_another(
    good_run: Path, gap_run: Path, tmp_path: Path
) -> None:
    result = report(good_run, gap_run, "--output", tmp_path / "two.html", "--data", tmp_path / "data", "--quiet")
    assert result.exit_code == 0, result.output
    assert {path.name[:8] for path in (tmp_path / "data").iterdir()} == {"1-run-1-", "2-run-1-"}
    text = (tmp_path / "two.html").read_text()
    assert 'id="r0"' in text
    assert 'id="r1"' in text


def test_only_an_older_page_is_replaced(gap_run: Path, tmp_path: Path) -> None:
    mine, page = tmp_path / "experiment.yaml", tmp_path / "page.html"
    mine.write_text("run: {workload: tiny}\n")
    refused = report(gap_run, "--output", mine)
    assert refused.exit_code == 2
    assert "is there and is no page of `killpoint report`" in " ".join(refused.stderr.split())
    assert mine.read_text() == "run: {workload: tiny}\n"
    for _ in range(2):
        assert report(gap_run, "--output", page).exit_code == 0


def test_a_folder_that_is_nothing_of_that_is_refused(tmp_path: Path) -> None:
    result = report(tmp_path)
    assert result.exit_code == 2
    assert "is no run (it has neither history/ nor store/), no sweep" in result.stderr
    (tmp_path / "results.jsonl").write_text('{"format": "something/1"}\n')
    result = report(tmp_path)
    assert result.exit_code == 2
    assert "is in format 'something/1'" in result.stderr
    assert not (tmp_path / "report.html").exists()
