"""What `killpoint points --record` counts on a real Ray: nothing in the catalogue is a name only."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from chaos.cli import app
from chaos.points import CATALOGUE


@pytest.mark.usefixtures("place")
def test_every_point_of_the_catalogue_is_passed_in_a_run_or_on_the_way_back(tmp_path: Path) -> None:
    result = CliRunner().invoke(app, ["points", "--record", "--output", str(tmp_path / "out"), "--json", "--quiet"])
    assert result.exit_code == 0, result.stderr
    rows = {row["name"]: row for row in json.loads(result.stdout)}
    assert list(rows) == list(CATALOGUE)
    assert [name for name, row in rows.items() if not row["passages"] and not row["recovery"]] == []
    assert {(each["rank"], each["hits"]) for each in rows["shard.half"]["passages"]} == {(0, 3), (1, 3)}
    assert {(each["rank"], each["hits"]) for each in rows["step.end"]["recovery"]} == {(0, 6), (1, 6)}  # from step 3
    log = rows["log.after_link"]
    assert {(each["role"], each["hits"]) for each in log["passages"]} == {("supervisor", 2), ("committer", 4)}
    assert [each["attempt"] for each in log["recovery"] if each["role"] == "supervisor"] == [0, 1]  # fence, choice
    assert rows["recover.load.half"]["recovery"]
    assert rows["data.read"]["passages"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["clean", "killed"]
