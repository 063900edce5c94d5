"""Damage as it is planned and done, on a store with one published checkpoint; and what an experiment may ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from storage_kit import CONFIG, OWNER, RUN, draft

from chaos.damage import Damage, DamageHow, inflict, prepare
from chaos.errors import ExperimentError
from chaos.experiment import parse_experiment
from chaos.faults import Fault
from storage.commit import commit_checkpoint
from storage.digests import bulk_digest
from storage.log import CommitLog
from storage.objects import LocalObjects

AT = {"attempt": 1, "role": "supervisor", "point": "recover.fence.after"}
SETTINGS = {"kind": "damage", "at": AT, "damage": {}}


def parsed(**change: Any) -> Fault:
    text = yaml.safe_dump({"run": {"workload": "tiny", "global_batch": 16}, "faults": [{**SETTINGS, **change}]})
    return parse_experiment(text).faults[0]


def test_a_damage_is_read_and_written_as_it_is() -> None:
    fault = parsed(damage={"file": "ledger", "rank": 1, "how": "cut"})
    assert fault.damage == Damage("ledger", 1, DamageHow.CUT)
    assert Fault.from_json(fault.to_json()) == fault
    assert "cut the newest ledger" in str(fault)
    assert parsed().damage == Damage("shard", 0, DamageHow.FLIP)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"kind": "sigkill"}, "belongs to kind damage"),
        ({"damage": None}, "is missing: which file"),
        ({"damage": {"rank": 2}}, "ranks are 0 to 1"),
        ({"damage": {"file": "log"}}, "faults[0].damage.file"),
        ({"at": {"rank": 0, "point": "step.begin"}}, "at a point of role supervisor"),
        ({"gate": {"role": "committer", "point": "publish.before"}}, "a damage kills nothing"),
    ],
)
def test_what_cannot_be_is_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(ExperimentError) as caught:
        parsed(**change)
    assert says in str(caught.value)


@pytest.mark.parametrize("how", list(DamageHow))
def test_what_is_announced_is_what_happens_to_the_newest_checkpoint(tmp_path: Path, how: DamageHow) -> None:
    (tmp_path / "store").mkdir()
    objects = LocalObjects(tmp_path / "store")
    log = CommitLog(objects, RUN)
    log.fence(CONFIG, OWNER)
    commit_checkpoint(objects, log, draft(objects, 3))
    made = draft(objects, 7)
    commit_checkpoint(objects, log, made)
    record = next(file for file in made.files if (file.kind, file.rank) == ("shard", 1))
    file = tmp_path / "store" / record.path
    before = file.read_bytes()
    wound = prepare(tmp_path, RUN, Damage("shard", 1, how))
    assert wound is not None
    middle = len(before) // 2
    assert (wound.path, wound.offset, wound.before) == (f"store/{record.path}", middle, record.digest)
    assert file.read_bytes() == before  # the receipt comes first
    inflict(tmp_path, wound)
    left = file.read_bytes() if file.exists() else None
    flipped = before[:middle] + bytes([before[middle] ^ 1]) + before[middle + 1 :]
    assert left == {"flip": flipped, "cut": before[:middle], "remove": None}[how.value]
    assert wound.after == (None if left is None else bulk_digest(left))


def test_without_a_checkpoint_there_is_nothing_to_damage(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    assert prepare(tmp_path, RUN, Damage("shard", 0, DamageHow.FLIP)) is None
