"""Invariants 2 and 3 as the design states them, read off a run's folder by loops over lists: slow, and obvious.

It knows of nothing else: rows against plan and dataset along the lineage, and what each attempt chose. Nothing of it is
the auditor's. It supposes what the runs of `lineages` keep to: a log whose chain is right, and whole manifests.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import xxhash
from plan_reference import sample_id

Entry = dict[str, Any]


@dataclass
class Told:
    """verdict: valid, invalid, unknown, not_judged. first: kind of fault → what is first wrong of that kind."""

    verdict: str
    first: dict[str, Any] = field(default_factory=dict)


@dataclass
class World:
    """What the run was meant to be. digests: of the dataset's rows; start: the plan's parameters behind `rows`."""

    rows: int
    group_rows: int
    window_groups: int
    seed: int
    global_batch: int
    ranks: int
    microbatches: int
    digests: list[int]

    def planned(self, position: int) -> int:
        return _sample_id(position, self.rows, self.group_rows, self.window_groups, self.seed)

    def microbatch(self, position: int) -> int:
        share = self.global_batch // self.ranks
        return position % self.global_batch % share // (share // self.microbatches)


_sample_id = cache(sample_id)


class Store:
    """The store as Python's own lists and dictionaries."""

    def __init__(self, run: Path) -> None:
        self.folder = run / "store"
        self.log: list[Entry] = [_body(path) for path in sorted((self.folder / "log").iterdir())]
        held = {entry["seq"] for entry in self.log}
        self.struck: dict[str, int] = {}  # damaged file → the attempt in which it was damaged
        for path in (run / "history" / "receipts").iterdir():
            receipt = _body(path)
            if receipt["kind"] == "damage":
                self.struck[receipt["path"]] = receipt["attempt"]
        self.whole = True
        for path in (run / "history").glob("*.jsonl"):
            for line in path.read_text().splitlines():
                self.whole = self.whole and json.loads(line)["body"].get("seq", 0) in held

    def manifest(self, name: str) -> Entry:
        return _body(self.folder / "manifests" / f"{name}.json")

    def damaged(self, file: Entry) -> bool:
        path = self.folder / file["path"]
        return not path.exists() or "xxh3-128:" + xxhash.xxh3_128_hexdigest(path.read_bytes()) != file["digest"]

    def rows(self, file: Entry) -> list[Entry]:
        table = pa.ipc.open_file(pa.py_buffer((self.folder / file["path"]).read_bytes())).read_all()
        about = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        return [{**row, "attempt": int(about["attempt"])} for row in table.to_pylist()]

    # -- what the log means

    def published(self, attempt: int) -> list[Entry]:
        """By the attempt while none had fenced it, newest first."""
        found = []
        for entry in self.log:
            if entry["kind"] == "fence" and entry["attempt"] > attempt:
                break
            if entry["kind"] == "publish" and entry["attempt"] == attempt:
                found.insert(0, entry)
        return found

    def choice(self, attempt: int) -> Entry | None:
        return next((e for e in self.log if e["kind"] == "choose" and e["attempt"] == attempt), None)

    def lineage(self, checkpoint: Entry | None) -> list[Entry]:
        """The checkpoint, those before it in its attempt, then what that attempt started from and its lineage."""
        if checkpoint is None:
            return []
        own = [p for p in self.published(checkpoint["attempt"]) if p["seq"] <= checkpoint["seq"]]
        return own + self.lineage(self.parent(checkpoint["attempt"]))

    def parent(self, attempt: int) -> Entry | None:
        choice = self.choice(attempt)
        if choice is None or choice["parent"] is None:
            return None
        return next(e for e in self.log if e["kind"] == "publish" and e["digest"] == choice["parent"]["digest"])

    def candidates(self, attempt: int) -> list[Entry]:
        """What the attempt before published, then its parent and its lineage; if it never chose, its candidates."""
        if attempt == 0:
            return []
        before = attempt - 1
        if before > 0 and self.choice(before) is None:
            return self.candidates(before)
        line = self.published(before) + self.lineage(self.parent(before))
        gone: set[str] = set()
        for entry in self.log:
            if entry["kind"] == "fence" and entry["attempt"] == attempt:
                break
            if entry["kind"] == "retire":
                gone |= set(entry["names"])
        return [p for p in line if p["name"] not in gone]

    def retired(self, name: str) -> bool:
        return any(entry["kind"] == "retire" and name in entry["names"] for entry in self.log)

    def verified(self, checkpoint: Entry, attempt: int) -> bool:
        """Whether it did when the attempt chose. Shards that a retirement has removed are no damage."""
        for file in self.manifest(checkpoint["name"])["files"]:
            if self.struck.get(file["path"], -1) >= attempt:
                continue  # damaged later
            if self.damaged(file) and not (file["kind"] == "shard" and self.retired(checkpoint["name"])):
                return False
        return True


def newest_verified(store: Store) -> Told:
    """Invariant 2. first: `attempt` → the first that chose wrongly."""
    attempts = sorted({entry["attempt"] for entry in store.log if entry["kind"] == "fence"})
    told = Told("valid" if attempts[-1:] > [0] else "not_judged")
    if not store.whole:
        return Told("unknown")
    for attempt in attempts:
        choice = store.choice(attempt)
        if choice is None:
            continue
        verdict = _chose_rightly(store, attempt, choice)
        if verdict == "invalid":
            told.first.setdefault("attempt", attempt)
        if verdict == "invalid" or told.verdict != "invalid":
            told.verdict = verdict if verdict != "valid" else told.verdict
    return told


def _chose_rightly(store: Store, attempt: int, choice: Entry) -> str:
    found, noted = store.candidates(attempt), {note["name"]: note for note in choice["candidates"]}
    if choice["parent"] is None:
        return "invalid" if found else "valid"
    chosen = choice["parent"]["name"]
    if chosen not in [publish["name"] for publish in found]:
        return "invalid"
    verdict = "valid"
    for publish in found:
        if publish["name"] == chosen:
            lost = [f for f in store.manifest(chosen)["files"] if f["kind"] == "ledger" and store.damaged(f)]
            if lost and verdict == "valid":
                verdict = "unknown"  # a ledger that is lost now: nobody knows since when
            return verdict if store.verified(publish, attempt) or lost else "invalid"
        if noted.get(publish["name"], {}).get("status") != "rejected":
            return "invalid"
        if store.verified(publish, attempt):
            if not store.retired(publish["name"]):
                return "invalid"
            verdict = "unknown"  # whether the rejected one was damaged cannot be found out again
    return verdict


def no_gaps_no_duplicates(store: Store, world: World) -> Told:
    """Invariant 3. first: repeat, gap, sample, content, beyond, step, microbatch → what is first wrong."""
    if not store.whole:
        return Told("unknown")
    newest = None
    for entry in store.log:
        if entry["kind"] == "publish":
            newest = entry
        if entry["kind"] == "choose" and entry["attempt"] > 0:
            newest = store.parent(entry["attempt"])
    line = list(reversed(store.lineage(newest)))
    if not line:
        return Told("not_judged")
    rows, lost = _rows_along(store, world, line)
    first = _first_faults(rows, lost, world, store.manifest(line[-1]["name"]))
    return Told("invalid" if first else "unknown" if lost else "valid", first)


def _rows_along(store: Store, world: World, line: list[Entry]) -> tuple[list[Entry], set[int]]:
    """All rows of the lineage, and the positions whose rows may have been in a file that is lost."""
    rows: list[Entry] = []
    lost: set[int] = set()
    begin = 0
    for publish in line:
        manifest = store.manifest(publish["name"])
        end = manifest["step"] + (1 if manifest.get("microbatch") else 0)
        for file in manifest["files"]:
            if file["kind"] == "ledger" and store.damaged(file):
                lost |= set(range(begin * world.global_batch, end * world.global_batch))
            elif file["kind"] == "ledger":
                rows += store.rows(file)
        begin = manifest["step"]
    return rows, lost


def _first_faults(rows: list[Entry], lost: set[int], world: World, last: Entry) -> dict[str, Any]:
    """last: the manifest whose step and microbatches say which positions had to be consumed."""
    batch, begun = world.global_batch, last.get("microbatch", 0)
    due = set(range(last["step"] * batch))
    due |= {p for p in range(last["step"] * batch, (last["step"] + 1) * batch) if world.microbatch(p) < begun}
    applied: dict[int, list[Entry]] = {}
    for row in rows:
        applied.setdefault(row["position"], []).append(row)
    first: dict[str, Any] = {}
    for position in sorted(due):
        there = applied.get(position, [])
        if len(there) > 1:
            spots = sorted((row["step"], row["sample_id"], row["attempt"]) for row in there)
            first.setdefault("repeat", (position, world.planned(position), [(s, a) for s, _, a in spots]))
        if not there and position not in lost:
            first.setdefault("gap", (position, world.planned(position)))
    for row in sorted(rows, key=lambda row: (row["step"], row["position"], row["sample_id"], row["attempt"])):
        step, position, sample = row["step"], row["position"], row["sample_id"]
        spot = (step, row["attempt"], position, sample)
        if position not in due:
            first.setdefault("beyond", spot)
        if step != position // batch:
            first.setdefault("step", spot)
        if row["microbatch"] != world.microbatch(position):
            first.setdefault("microbatch", spot)
        if sample != world.planned(position):
            first.setdefault("sample", spot)
        if row["content"] != world.digests[sample]:
            first.setdefault("content", spot)
    return first


def _body(path: Path) -> Entry:
    body: Entry = json.loads(path.read_text())["body"]
    return body
