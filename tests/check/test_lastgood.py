"""What is remembered of the last good check, and which kill points changed sources bear on."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.check import lastgood
from chaos.check.lastgood import LastGood
from chaos.check.order import GROUPS
from chaos.experiment import parse_experiment

TEXT = "run: {workload: tiny, global_batch: 16, steps: 8, save_every: 4}\n"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache"


def test_a_record_comes_back_as_it_was(tmp_path: Path) -> None:
    place = lastgood.place_of(parse_experiment(TEXT, tmp_path / "experiment.yaml"))
    good = LastGood({"trainers/saver.py": "ab"}, {"plain": 1.5})
    assert lastgood.read(place) is None
    lastgood.write(place, LastGood({}, {}))
    lastgood.write(place, good)
    assert lastgood.read(place) == good
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_each_experiment_has_its_own(tmp_path: Path) -> None:
    places = {
        lastgood.place_of(parse_experiment(text, path))
        for text in (TEXT, TEXT.replace("8", "12")) for path in (tmp_path / "a.yaml", tmp_path / "b.yaml")
    }  # fmt: skip
    assert len(places) == 4


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"format": "other"}', '{"format": "killpoint.check/1"}',
                                  '{"format": "killpoint.check/1", "files": [], "median_s": {}}'])
def test_a_record_that_cannot_be_read_is_none(tmp_path: Path, text: str) -> None:
    place = tmp_path / "record.json"
    place.write_text(text)
    assert lastgood.read(place) is None


def test_new_gone_and_different_sources_have_changed() -> None:
    assert lastgood.changed_files({"a": "1", "b": "1", "c": "1"}, {"a": "1", "b": "2", "d": "1"}) == ["b", "c", "d"]


def test_a_source_bears_on_the_points_that_its_code_passes() -> None:
    assert lastgood.groups_of(["trainers/saver.py"]) == {"save"}
    assert lastgood.groups_of(["storage/retention.py", "trainers/reducer.py"]) == {"retire", "step"}
    assert lastgood.groups_of(["trainers/loop.py"]) == set(GROUPS)  # in no row
    assert lastgood.groups_of(["/home/me/workload.py"]) == {"user", "step", "recovery"}
    assert lastgood.groups_of([]) == frozenset()


def test_every_row_means_a_source_that_is_there_and_a_group_that_is() -> None:
    sources = lastgood.source_digests(())
    for pattern, groups in lastgood._BEARS:
        assert any(Path(name).match(pattern) for name in sources), pattern
        assert set(groups) <= set(GROUPS)


def test_the_workloads_sources_are_digested_with_killpoints_own(tmp_path: Path) -> None:
    file = tmp_path / "workload.py"
    file.write_text("A = 1\n")
    before = lastgood.source_digests([str(file)])
    file.write_text("A = 2\n")
    assert lastgood.changed_files(before, lastgood.source_digests([str(file)])) == [str(file)]
    assert "trainers/loop.py" in before
    assert not any(name.startswith("chaos/") for name in before)
