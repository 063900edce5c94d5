"""`lab pipeline` without Ray: the pictures, the command, and when measurement and model agree."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from typer.testing import CliRunner, Result

from chaos.cli import app
from chaos.labs.pipeline_measure import StageTooShort, Stated, Steady, agree, waits_s
from chaos.labs.pipeline_model import schedule
from chaos.labs.pipeline_picture import ms, timeline_svg, timeline_text

SLOW_INPUT = schedule([14_000] * 4, [10_000] * 4, 2)


def lab(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["lab", "pipeline", *arguments])


def test_two_rows_and_an_axis() -> None:
    rows = timeline_text(SLOW_INPUT, 76).plain.splitlines()
    assert rows == [
        "prepare   " + "0" * 14 + "1" * 14 + "2" * 14 + "3" * 14 + "·" * 10,
        "train     " + "·" * 14 + "0" * 10 + "····" + "1" * 10 + "····" + "2" * 10 + "····" + "3" * 10,
        "ms        0         10        20        30        40        50        60",
    ]


@pytest.mark.parametrize("columns", [20, 40, 100, 300])
def test_the_rows_fit(columns: int) -> None:
    assert max(map(len, timeline_text(SLOW_INPUT, columns).plain.splitlines()[:2])) <= columns


def test_the_picture_has_a_bar_for_each_stage_of_each_batch_to_scale() -> None:
    space = "{http://www.w3.org/2000/svg}"
    bars = [bar for bar in ElementTree.fromstring(timeline_svg(SLOW_INPUT, "four")).iter(f"{space}rect") if len(bar)]
    titles = [bar[0].text for bar in bars]
    assert titles[:2] == ["batch 0: 0 to 14 ms", "batch 1: 14 to 28 ms"]
    assert titles[4:] == [f"batch {n}: {14 * n + 14} to {14 * n + 24} ms" for n in range(4)]
    widths = [float(bar.get("width", "0")) for bar in bars]
    assert widths[0] / widths[4] == pytest.approx(1.4, abs=0.001)
    rows = {bar.get("y") for bar in bars}
    assert len(rows) == 2


def test_milliseconds_have_as_many_digits_as_they_need() -> None:
    assert [ms(time_us) for time_us in (46_000, 9_500, 1, 0, 100_000)] == ["46", "9.5", "0.001", "0", "100"]


def test_the_command_tells_the_published_figures() -> None:
    told = json.loads(lab("--prepare-ms", "14", "--json").stdout)
    assert (told["serial_ms"], told["total_ms"], told["steady_state_ms"], told["measured"]) == (96, 66, 14, None)
    assert len(told["records"]) == 4
    shown = lab()
    assert (shown.exit_code, "serial 64 ms" in shown.stdout, "46 ms" in shown.stdout) == (0, True, True)


def test_the_picture_is_a_new_file(tmp_path: Path) -> None:
    file = tmp_path / "timeline.svg"
    assert lab("--picture", str(file)).exit_code == 0
    first = file.read_text()
    assert ElementTree.fromstring(first).tag.endswith("svg")
    again = lab("--prepare-ms", "14", "--picture", str(file))
    assert (again.exit_code, file.read_text()) == (2, first)
    assert "File exists" in again.stderr


@pytest.mark.parametrize("arguments", [("--jitter-ms", "7"), ("--prepare-ms", "0.0001"), ("--batches", "0")])
def test_wrong_usage_is_status_2(arguments: tuple[str, str]) -> None:
    assert lab(*arguments).exit_code == 2


MODEL = Steady(interval_ms=100.0, wait_ms=20.0, most_in_flight=2)


@pytest.mark.parametrize(
    ("measured", "agrees"),
    [
        (MODEL, True),
        (replace(MODEL, interval_ms=124.0), True),
        (replace(MODEL, interval_ms=76.0, wait_ms=44.0), True),
        (replace(MODEL, interval_ms=126.0), False),
        (replace(MODEL, interval_ms=74.0), False),
        (replace(MODEL, wait_ms=46.0), False),
        (replace(MODEL, most_in_flight=40), True),
    ],
)
def test_agreement_is_of_interval_and_wait(measured: Steady, agrees: bool) -> None:
    assert agree(measured, MODEL, 0.25) is agrees


def test_the_model_of_the_stream_has_its_window_and_no_bound() -> None:
    stated = Stated.of(6_000, 0, 7, 10_000, 8, depths=(0, 4), workers=(1,), tolerance=0.25)
    assert len(stated.prepare_us) == len(stated.train_us) > 8 + 4
    stream, alone = stated.model(4), stated.model(4, bounded=True)
    assert len(stream.passages) == len(alone.passages) == 8
    assert stream.passages[0].train_start_us == 5 * 6_000  # the fifth is there when the first is taken
    assert alone.passages[0].train_start_us == 6_000
    assert (alone.most_in_flight, stream.most_in_flight) == (4, 9)
    assert stated.model(0).interval_us == 16_000


def test_what_is_real_in_a_preparation_is_no_wait() -> None:
    stated = Stated.of(60_000, 0, 7, 100_000, 2, depths=(1,), workers=(1,), tolerance=0.25)
    assert waits_s(stated, 45.0) == pytest.approx([0.015] * len(stated.prepare_us))
    with pytest.raises(StageTooShort, match=r"60\.0 ms .* 61\.0 ms.*--stretch"):
        waits_s(stated, 61.0)
