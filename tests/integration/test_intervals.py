"""A small `killpoint intervals` on a real Ray: what was said before each kill is what came, and the parts add up."""

from __future__ import annotations

import json
from dataclasses import astuple, replace
from pathlib import Path

import pytest

from chaos.cost.command import intervals_in
from chaos.cost.files import JOURNAL, read_result
from chaos.cost.study import Watch
from chaos.cost.values import Asked, Run
from chaos.experiment import parse_experiment
from chaos.life import Place

TEXT = "run: {workload: tiny, seed: 3, ranks: 2, global_batch: 16, microbatches: 2, steps: 16, twin: false}"
ASKED = Asked((2, 5), 2, "even", 1, 600.0, None, 8, 300)


def test_gated_kills_cost_what_was_said_and_an_interrupted_study_goes_on(place: Place, tmp_path: Path) -> None:
    experiment, folder = parse_experiment(TEXT), tmp_path / "out"
    done: list[str] = []

    def stop(run: Run, left_s: float | None) -> None:
        done.append(run.name)
        if len(done) == 3:  # a run with kills is done
            assert left_s is not None
            raise KeyboardInterrupt

    cut = intervals_in(place, experiment, folder, ASKED, Watch(done=stop))
    assert (cut.complete, cut.verdict, len(cut.runs)) == (False, "unknown", 3)
    lines = [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]
    kinds = ["expected" if "expected" in line else "run" for line in lines[1:]]
    assert kinds.index("expected") == 2  # after the undisturbed runs, before the first kill
    assert kinds[-1] == "run"

    result = intervals_in(place, experiment, folder, ASKED, Watch(done=lambda run, left_s: done.append(run.name)))
    assert result.verdict == "valid", (result.runs, [kill for kill in result.kills if not kill.met])
    assert len(done) == len(set(done)) == len(result.runs)  # none was done twice
    assert read_result(folder) == result
    assert [(row.kills, row.met, row.exact) for row in result.rows] == [(2, 2, 2)] * 2
    for kill in result.kills:
        recovery = kill.recovery
        assert recovery is not None
        assert recovery.parts is not None
        assert recovery.whole_s is not None
        assert recovery.unexplained_s is not None
        assert recovery.redo_microbatches == kill.expected.redo_microbatches[0]
        assert min(astuple(recovery.parts)[:4]) > 0
        assert abs(sum(astuple(recovery.parts)) + recovery.unexplained_s - recovery.whole_s) < 1e-4
        assert recovery.bytes_read > 0
    assert result.recommendation is not None
    assert result.recommendation.every.value >= 1
    assert not (folder / "every2-kills-0" / "store").exists()

    no_more = Watch(run=lambda name, kills: pytest.fail(name))
    again = intervals_in(place, experiment, folder, replace(ASKED, mtbf_s=60.0), no_more)
    before, after = result.rows[0].goodput, again.rows[0].goodput
    assert before is not None
    assert after is not None
    assert after.value < before.value  # computed anew, without a run
