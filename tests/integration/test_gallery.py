"""A handful of planted bugs, each with its latent control, in real runs; `killpoint gallery` shows all of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import trainers.supervisor
from chaos.gallery.bugs import load_bugs
from chaos.gallery.command import default_folder
from chaos.gallery.conduct import Conductor
from chaos.life import Place
from storage.selection import candidates, ever_published

PLANTED = default_folder()


@pytest.mark.parametrize("key", ["1", "20", "22"])
def test_it_is_caught_and_named_and_its_control_is_left_alone(key: str, place: Place, tmp_path: Path) -> None:
    bug = load_bugs(PLANTED)[key]
    (row,) = Conductor(PLANTED, tmp_path, place).rows({key: bug})
    assert row.good, row.why
    assert trainers.supervisor.candidates is candidates  # the processes that served it serve others, as this one does
    assert trainers.supervisor.ever_published is ever_published
    told = [path for path in tmp_path.rglob("*") if path.is_file() and not path.is_relative_to(tmp_path / "auditor")]
    trackers = re.findall(r"\S+#\d+", bug.seen_in)
    names = (bug.title, "planted", "gallery", *(each.make.__name__ for each in bug.defect), *trackers)
    for path in told:
        text = path.read_bytes()
        assert not [name for name in names if len(name) > 4 and name.encode() in text], path
