"""The sample ledger along the lineage as a map, updates × places in the global batch. Pure.

What is as it must be becomes a few blocks, what is not a rectangle each: a single wrong sample among millions stays a
mark of its own. Unlike the auditor, which is bounded by a window, this counts every position of the run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import numpy.typing as npt

from chaos.audit import logbook
from chaos.audit.coverage import Expected
from chaos.audit.evidence import I64, Evidence, Publish, Segment
from chaos.audit.facts import RunBegun
from chaos.audit.plan import Plan
from chaos.audit.verified import damages, manifest_of
from chaos.page.values import Block, Fate, Fault, LedgerMap

MOST_POSITIONS = 1 << 26
MOST_BLOCKS = 400
SHOWN = 200  # rectangles
_WORDS = {
    Fate.GAP: "never applied", Fate.REPEATED: "applied more than once",
    Fate.WRONG: "applied with another sample, content or update than the plan says",
    Fate.UNKNOWN: "unknown: the file that says so is lost",
}  # fmt: skip
Fates = npt.NDArray[np.int8]


@dataclass(frozen=True)
class _Read:
    """Rows of the lineage, and the updates [first, end) whose rows may be lost with a file."""

    segments: list[Segment]
    lost: list[tuple[int, int]]


def ledger_map(evidence: Evidence) -> LedgerMap:
    """Of positions 0 … cursor − 1, as the published segments have them."""
    begun, line = evidence.begun, tuple(reversed(logbook.lineage(evidence.store.log.entries)))
    if begun is None or begun.global_batch < 1:
        return _nothing("the history does not say what the run was")
    if not line:
        return _nothing("nothing was published: there is no ledger yet")
    step, microbatch = line[-1].moment
    updates = step + bool(microbatch)
    if updates * begun.global_batch > MOST_POSITIONS:
        return _nothing(f"more than {MOST_POSITIONS:,} positions: too many for one map; `killpoint audit` judges them")
    read = _read(evidence, line)
    fates, times = _fates(evidence, begun, read, line[-1], updates)
    found = sorted(_faults(fates.reshape(updates, -1), times), key=lambda fault: (fault.first, fault.low))
    shown = _most_telling(found)
    counts = {fate: int(np.count_nonzero(fates == fate)) for fate in Fate}
    return LedgerMap(
        updates, begun.global_batch, begun.ranks, tuple(_blocks(line)), tuple(shown), counts,
        sum(fault.positions for fault in found) - sum(fault.positions for fault in shown),
    )  # fmt: skip


def _nothing(problem: str) -> LedgerMap:
    return LedgerMap(0, 0, 0, (), (), {}, 0, problem)


def _most_telling(found: list[Fault]) -> list[Fault]:
    return found if len(found) <= SHOWN else sorted(found, key=lambda fault: fault.fate is Fate.UNKNOWN)[:SHOWN]


def _blocks(line: Sequence[Publish]) -> list[Block]:
    """One for each checkpoint, or for each attempt if there are too many."""
    blocks: list[Block] = []
    start = 0
    for publish in line:
        step, microbatch = publish.moment
        last = step - 1 + bool(microbatch)
        if last >= start:
            blocks.append(Block(start, last, publish.attempt, publish.name))
        start = step
    if len(blocks) <= MOST_BLOCKS:
        return blocks
    of_attempt = [list(group) for _, group in groupby(blocks, key=lambda block: block.attempt)]
    return [Block(group[0].first, group[-1].last, group[0].attempt, f"{group[0].checkpoint} to {group[-1].checkpoint}")
            for group in of_attempt]  # fmt: skip


def _read(evidence: Evidence, line: Sequence[Publish]) -> _Read:
    read, start = _Read([], []), 0
    for publish in line:
        step, microbatch = publish.moment
        manifest = manifest_of(evidence, publish)
        broken = {damage.path for damage in damages(evidence, publish)}
        files = [] if manifest is None else [file for file in manifest.files if file.kind == "ledger"]
        seen = [evidence.store.files.get(file.path) for file in files if file.path not in broken]
        read.segments.extend(each.segment for each in seen if each is not None and each.segment is not None)
        if manifest is None or any(each is None or each.segment is None for each in seen) or len(seen) < len(files):
            read.lost.append((start, step + bool(microbatch)))
        start = step
    return read


def _fates(
    evidence: Evidence, begun: RunBegun, read: _Read, newest: Publish, updates: int
) -> tuple[Fates, npt.NDArray[np.int32]]:
    """(fate, how often applied) of each position [updates × global batch]."""
    batch = begun.global_batch
    step, microbatch = newest.moment
    split = (
        (begun.ranks, begun.microbatches, microbatch) if batch % (begun.ranks * begun.microbatches) == 0 else (0, 0, 0)
    )
    expected = Expected(step * batch, batch, 0, None, evidence.dataset.content, evidence.dataset.known, (), *split)
    size = updates * batch
    times = np.zeros(size, np.int32)
    wrong = np.zeros(size, np.bool_)
    plan = _plan(evidence)
    for segment in read.segments:
        inside = (segment.position >= 0) & (segment.position < size)
        position = segment.position[inside]
        times += np.bincount(position, minlength=size).astype(np.int32)
        bad = segment.step[inside] != position // batch
        if plan is not None:
            bad |= plan.sample_ids(position) != segment.sample_id[inside]
        bad |= _other_content(evidence, segment.sample_id[inside], segment.content[inside])
        wrong[position[bad]] = True
    due = np.arange(size, dtype=np.int64)
    must = expected.consumed(due)
    fates = np.where(must & (times == 0), Fate.GAP, Fate.ONCE).astype(np.int8)
    for first, end in read.lost:
        part = slice(first * batch, end * batch)
        fates[part][fates[part] == Fate.GAP] = Fate.UNKNOWN
    fates[wrong | (~must & (times > 0))] = Fate.WRONG
    fates[times > 1] = Fate.REPEATED
    return fates, times


def _plan(evidence: Evidence) -> Plan | None:
    spec = evidence.plan
    return None if spec is None else Plan(spec.rows, spec.group_rows, spec.window_groups, spec.seed)


def _other_content(evidence: Evidence, ids: I64, content: npt.NDArray[np.uint64]) -> npt.NDArray[np.bool_]:
    data = evidence.dataset
    known = (ids >= 0) & (ids < len(data.known))
    known[known] = data.known[ids[known]]
    differs = np.zeros(len(ids), np.bool_)
    differs[known] = data.content[ids[known]] != content[known]
    return differs


def _faults(fates: Fates, times: npt.NDArray[np.int32]) -> Iterator[Fault]:
    """Runs of equal fate in each update, those of following updates joined where they have the same extent."""
    batch = fates.shape[1]
    open_runs: dict[tuple[int, int, int], tuple[int, int]] = {}  # (fate, low, high) → (first, last) update
    for update in np.flatnonzero((fates != Fate.ONCE).any(axis=1)).tolist():
        runs = set(_runs(fates[update]))
        for key, (first, last) in list(open_runs.items()):
            if key not in runs or last != update - 1:
                yield _fault(key, first, last, batch, times)
                del open_runs[key]
        for key in runs:
            open_runs[key] = open_runs[key][0] if key in open_runs else update, update
    for key, (first, last) in open_runs.items():
        yield _fault(key, first, last, batch, times)


def _runs(row: Fates) -> Iterator[tuple[int, int, int]]:
    edges = np.flatnonzero(np.diff(row)) + 1
    for low, end in zip([0, *edges.tolist()], [*edges.tolist(), len(row)], strict=True):
        if row[low] != Fate.ONCE:
            yield int(row[low]), low, end - 1


def _fault(key: tuple[int, int, int], first: int, last: int, batch: int, times: npt.NDArray[np.int32]) -> Fault:
    fate, low, high = Fate(key[0]), key[1], key[2]
    count = (last - first + 1) * (high - low + 1)
    begin, end = first * batch + low, last * batch + high
    where = f"position {begin}" if count == 1 else f"positions {begin}–{end}"
    if count > 1 and last > first and (low, high) != (0, batch - 1):
        where = f"positions {begin}–{end} (places {low}–{high} of the batch)"
    step = f"step {first}" if first == last else f"steps {first}–{last}"
    words = _WORDS[fate]
    if fate is Fate.REPEATED and count == 1:
        words = f"applied {int(times[begin])} times"
    samples = "1 sample" if count == 1 else f"{count} samples"
    return Fault(fate, first, last, low, high, count, f"{step}, {where}: {samples} {words}")
