"""The auditor on the evidence of a real run: whatever is changed afterwards, it says so and names the place."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from reseal import rewrite_ledger

from chaos.audit import audit_run


@pytest.fixture
def copy(original: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy", ignore=shutil.ignore_patterns("gates")))


def published(folder: Path) -> list[Path]:
    names = {body["name"] for body in _entries(folder) if body["kind"] == "publish"}
    return sorted(p for p in (folder / "store").rglob("*") if p.is_file() and (
        p.parent.name == "log" or p.name.split("-r")[0].removesuffix(".json") in names))


def _entries(folder: Path) -> list[dict[str, str]]:
    from storage.sealed import unseal

    return [unseal(p.read_bytes(), p.name)[0] for p in sorted((folder / "store" / "log").glob("*.json"))]


def test_the_audit_of_a_copy_says_what_the_run_said(copy: Path) -> None:
    verdict = audit_run(copy).to_json()
    assert verdict["verdict"] == "valid", verdict["invariants"]


@pytest.mark.no_cover
def test_one_flipped_bit_in_any_published_file_is_found(copy: Path) -> None:
    rng = random.Random(11)
    files = published(copy)
    assert {p.parent.name for p in files} == {"log", "manifests", "ledger", "shards"}
    for path in files:
        data = path.read_bytes()
        for _ in range(2):
            bit = rng.randrange(len(data) * 8)
            changed = bytearray(data)
            changed[bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            _invalid(copy, path.name)
        path.write_bytes(data)
    assert audit_run(copy).to_json()["verdict"] == "valid"


@pytest.mark.no_cover
@pytest.mark.parametrize("folder", ["log", "manifests"])
def test_a_cut_at_any_byte_is_found(copy: Path, folder: str) -> None:
    path = sorted((copy / "store" / folder).glob("*.json"))[-1]
    data = path.read_bytes()
    for end in range(0, len(data), max(1, len(data) // 60)):
        path.write_bytes(data[:end])
        _invalid(copy, path.name)


def test_a_deleted_ledger_segment_is_found(copy: Path) -> None:
    path = sorted((copy / "store" / "ledger").glob("s00000003-*"))[0]
    path.unlink()
    _invalid(copy, path.name)


def _committed_segment(run: Path) -> Path:
    """A ledger segment of step 6 that is published: an interrupted save may have left strays of the same step."""
    return next(p for p in published(run) if p.parent.name == "ledger" and p.name.startswith("s00000006-"))


def _invalid(run: Path, file: str) -> None:
    verdict = audit_run(run).to_json()
    assert verdict["verdict"] == "invalid", (file, verdict["invariants"])
    assert any(file in i["witness"] for i in verdict["invariants"] if i["verdict"] == "invalid"), file


def _swap(table: pa.Table) -> pa.Table:
    order = np.arange(table.num_rows)
    order[[4, 5]] = order[[5, 4]]
    ids, contents = (table[n].combine_chunks().take(pa.array(order)) for n in ("sample_id", "content"))
    return table.set_column(1, table.schema.field(1), ids).set_column(2, table.schema.field(2), contents)


def _repeat(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 5), table.slice(4)])


def _drop(table: pa.Table) -> pa.Table:
    return pa.concat_tables([table.slice(0, 4), table.slice(5)])


def _exchange_contents(table: pa.Table) -> pa.Table:
    order = np.arange(table.num_rows)
    order[[4, 5]] = order[[5, 4]]
    return table.set_column(2, table.schema.field(2), table["content"].combine_chunks().take(pa.array(order)))


@pytest.mark.parametrize("change", [_swap, _repeat, _drop, _exchange_contents])
def test_a_ledger_that_lies_under_fresh_seals_is_found(copy: Path, change: Callable[[pa.Table], pa.Table]) -> None:
    store = copy / "store"
    path = _committed_segment(copy)
    with pa.ipc.open_file(path) as file:
        row = file.read_all().slice(4, 1).to_pydict()
    rewrite_ledger(store, path, change)
    verdict = audit_run(copy).to_json()
    finding = next(i for i in verdict["invariants"] if i["id"] == 3)
    assert (verdict["verdict"], finding["verdict"]) == ("invalid", "invalid")
    witness = finding["witness"]
    assert f"step {row['step'][0]}" in witness, witness
    assert str(row["sample_id"][0]) in witness or str(row["position"][0]) in witness, witness


def test_sealing_anew_without_a_change_is_no_finding_of_the_ledger(copy: Path) -> None:
    store = copy / "store"
    rewrite_ledger(store, _committed_segment(copy), lambda table: table)
    finding = next(i for i in audit_run(copy).to_json()["invariants"] if i["id"] == 3)
    assert finding["verdict"] == "valid", finding


def test_without_history_the_verdict_is_unknown(copy: Path) -> None:
    shutil.rmtree(copy / "history")
    assert audit_run(copy).to_json()["verdict"] == "unknown"


@pytest.mark.parametrize("role", ["supervisor", "worker", "committer"])
def test_a_history_cut_at_a_line_is_unknown(copy: Path, role: str) -> None:
    for path in sorted((copy / "history").glob(f"{role}-*.jsonl")):
        data = path.read_bytes()
        lines = data.splitlines(keepends=True)
        for keep in sorted({0, 1, len(lines) // 2, len(lines) - 1} - {len(lines)}):  # a late standby has one line only
            path.write_bytes(b"".join(lines[:keep]))
            verdict = audit_run(copy).to_json()
            assert verdict["verdict"] in ("unknown", "invalid"), (path.name, keep)
            assert any(i["verdict"] == "unknown" for i in verdict["invariants"]), (path.name, keep)
        path.write_bytes(data)
