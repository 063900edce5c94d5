"""The gallery's parts without Ray: its bugs, its judgement, its auditor, and how replacements come and go."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from chaos.errors import GalleryError
from chaos.gallery import carrier
from chaos.gallery.auditor import Auditor, verdict_of
from chaos.gallery.bugs import Bug, Case, load_bugs
from chaos.gallery.carrier import Carrier, Planted, install, uninstall
from chaos.gallery.command import NUMBERS, Gallery, default_folder
from chaos.gallery.judge import Row, row
from chaos.oracle import _coupled

BUG = Bug(4, "a title", (), Case(), Case(), {3: "samples 7–9"}, "nothing was killed", may=frozenset({5}))
PLANTED = Planted(default_folder().resolve(), "22", False)


def verdict(overall: str, unseen: str = "", **witnesses: str) -> dict[str, Any]:
    found = {int(key[1:]): text for key, text in witnesses.items()}
    return {
        "verdict": overall, "unseen": [unseen],
        "invariants": [
            {"id": n, "name": f"i{n}", "verdict": overall if n in found else "valid", "witness": found.get(n, "")}
            for n in range(1, 11)
        ],
    }  # fmt: skip


LEFT_ALONE = verdict("valid", "nothing was killed: no recovery was seen")


def test_every_number_is_planted() -> None:
    assert {bug.number for bug in load_bugs(default_folder()).values()} == set(NUMBERS)


def test_a_layer_that_joins_the_samples_of_a_batch_has_no_oracle() -> None:
    from torch import nn

    assert _coupled(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.0))) == ""
    assert _coupled(nn.Sequential(nn.Linear(2, 2), nn.Dropout(0.1))) == "Dropout"
    assert _coupled(nn.Sequential(nn.BatchNorm1d(2))) == "BatchNorm1d"


def test_a_bug_that_is_caught_and_named() -> None:
    found = row(BUG, verdict("invalid", i3="samples 7–9 were applied twice", i5="not the twin's"), LEFT_ALONE)
    assert found.good
    assert found.witness == "samples 7–9 were applied twice"
    assert found.unseen == "nothing was killed: no recovery was seen"


@pytest.mark.parametrize(
    ("planted", "why"),
    [
        (verdict("valid"), "the verdict is valid, it must be invalid"),
        (verdict("unknown", i3="samples 7–9"), "the verdict is unknown"),
        (verdict("invalid", i3="samples 1–2"), "does not say 'samples 7–9'"),
        (verdict("invalid", i5="not the twin's"), "invariant 3 is valid, it must be invalid"),
        (verdict("invalid", i3="samples 7–9", i8="redo"), "invariant 8 is called invalid: redo"),
    ],
)
def test_a_bug_that_is_not(planted: dict[str, Any], why: str) -> None:
    found = row(BUG, planted, LEFT_ALONE)
    assert not found.good
    assert why in "; ".join(found.why)


@pytest.mark.parametrize(
    ("control", "why"),
    [
        (verdict("invalid", "nothing was killed", i2="an older one"), "the latent control is called invalid: 2 i2: an"),
        (verdict("valid", "something else"), "does not list what it could not have seen"),
    ],
)
def test_a_control_that_is_not_left_alone(control: dict[str, Any], why: str) -> None:
    found = row(BUG, verdict("invalid", i3="samples 7–9"), control)
    assert found.named
    assert not found.good
    assert why in found.why[0]


def test_the_exit_status_asks_for_every_number_and_every_variant() -> None:
    good = Row("3-a", 3, "t", planted=True, caught=True, named=True, control="valid", control_told=True)
    assert Gallery((good,), (3,)).exit_status == 0
    assert Gallery((good, replace(good, key="3-b", named=False)), (3,)).exit_status == 1
    assert Gallery((good,), (3, 4)).exit_status == 1
    assert Gallery((good,), (3, 4)).to_json()["missing"] == [4]


def test_a_folder_without_bugs(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="no file here defines BUGS"):
        load_bugs(tmp_path)


def test_the_auditor_can_import_nothing_that_was_planted(tmp_path: Path) -> None:
    code = (
        "import importlib.util as u, json, chaos.audit; "
        "print(json.dumps([n for n in ('tests', 'selection', 'scenes', 'state', 'commit') if u.find_spec(n)]))"
    )
    process = Auditor(tmp_path / "auditor").command("-c", code)
    out, err = process.communicate()
    assert (json.loads(out), process.returncode) == ([], 0), err


def test_an_auditor_without_a_verdict_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(GalleryError, match="no verdict"):
        verdict_of(Auditor(tmp_path / "auditor").begin(tmp_path))


def test_replacements_come_with_the_role_and_go_with_the_run(tmp_path: Path) -> None:
    import trainers.supervisor as target

    original = target.candidates
    install(PLANTED, "run", tmp_path, "committer", 0, None)
    assert target.candidates is original
    uninstall()
    try:
        install(PLANTED, "run", tmp_path, "supervisor", 0, None)
        first = target.candidates
        assert first is not original
        install(PLANTED, "run", tmp_path, "supervisor", 1, None)
        assert target.candidates is first  # the same run: the defect keeps what it has noted
        assert carrier._in_place is not None
        assert carrier._in_place.here.attempt == 1
        install(PLANTED, "twin-run", tmp_path, "supervisor", 0, None)
        assert target.candidates is not first
    finally:
        uninstall()
    assert target.candidates is original


def test_a_carrier_travels_with_what_it_carries(tmp_path: Path) -> None:
    sent = Carrier(PLANTED, "run", tmp_path, ())
    got = Carrier.__new__(Carrier)
    got.__setstate__(sent.__getstate__())
    assert got.__getstate__() == sent.__getstate__()
    assert sent.__getstate__()[0] == PLANTED
