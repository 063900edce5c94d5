"""A check with a budget goes on after every point once, with what changed code bears on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from chaos.check import lastgood
from chaos.check.command import Limits, Watch, check_in
from chaos.check.lastgood import LastGood
from chaos.check.order import Stage
from chaos.check.pace import PLAIN
from chaos.experiment import packaged_experiment
from chaos.life import Place

EXPERIMENT = packaged_experiment("sweep.yaml")


def test_code_that_changed_since_the_last_good_check_is_killed_more_often(place: Place, tmp_path: Path) -> None:
    """`retire.after_unlink` is passed twice, by the committer alone: once for the first stage, once for the second."""
    record = lastgood.place_of(EXPERIMENT)
    before = lastgood.source_digests(()) | {"storage/retention.py": "what it was then"}
    lastgood.write(record, LastGood(before, {PLAIN: 1.0}))
    checked = check_in(place, EXPERIMENT, tmp_path, Limits(600.0, ("retire.after_unlink",)), Watch())
    assert checked.verdict == "valid", checked.summary.failing
    assert "changed since the last good check: storage/retention.py; it bears on retire" in checked.notes
    done = Counter(each.stage for each in checked.plan if each.trial.name in checked.results)
    assert done == {Stage.ONCE: 1, Stage.CHANGED: 1}
    assert lastgood.read(record) == LastGood(before, {PLAIN: 1.0})  # a check of one point is no good check of all
    record.unlink()
