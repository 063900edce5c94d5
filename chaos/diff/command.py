"""The logic of `killpoint diff`: what A and B are, reading them, comparing, and the JSON of the result."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from chaos.diff.causes import Finding
from chaos.diff.checkpoints import CheckpointComparison, compare_checkpoints
from chaos.diff.compare import Comparison, Divergence, by_attempt, compare
from chaos.diff.diagnose import diagnose, diagnose_length
from chaos.diff.differences import Difference
from chaos.diff.read_run import Side, read_run
from chaos.diff.reference import Reference
from chaos.diff.tensors import Checkpoint, PartDifference, load, names, part_differences
from chaos.diff.trace import TRACE_FILE, Trace, TraceError
from storage.errors import Damaged, Unavailable

SAME, DIFFERENT, UNKNOWN = "no difference", "different", "could not compare"
EXIT_STATUS = {SAME: 0, DIFFERENT: 1, UNKNOWN: 2}
_NAME = re.compile(r"(?P<moment>s(?P<step>[0-9]{8,})(-m[0-9]+)?)-a(?P<attempt>[0-9]{4,})")  # -m: inside of a step
Say = Callable[[str], None]


@dataclass(frozen=True)
class CheckpointAt:
    """A checkpoint as an argument names it."""

    store: Path
    name: str


@dataclass(frozen=True)
class Result:
    """report: what `--json` prints, and what the terminal shows."""

    report: Mapping[str, Any]

    @property
    def exit_status(self) -> int:
        return EXIT_STATUS[self.report["result"]]


def diff(a: str, b: str, say: Say = lambda text: None) -> Result:
    """Raises TraceError, Damaged, Unavailable: what makes a comparison impossible."""
    places = locate(a), locate(b)
    if isinstance(places[0], CheckpointAt) and isinstance(places[1], CheckpointAt):
        loaded = []
        for place in (places[0], places[1]):
            say(f"reading {place.store.parent}:{place.name}")
            loaded.append(load(place.store, place.name))
        say("comparing")
        return Result(_checkpoint_report(loaded[0], loaded[1], compare_checkpoints(loaded[0], loaded[1])))
    sides = []
    for given, other, path in ((a, b, places[0]), (b, a, places[1])):
        if isinstance(path, CheckpointAt):
            raise TraceError(f"{given} is a checkpoint and {other} is none: give two runs or two checkpoints")
        say(f"reading {path}")
        sides.append(read_side(path))
    say("comparing")
    return Result(_report(sides[0], sides[1]))


def locate(text: str) -> Path | CheckpointAt:
    """What an argument names: RUN:NAME or a manifest → a checkpoint, all else a path. Raises TraceError."""
    path = Path(text)
    folder, _, name = text.rpartition(":")
    if not path.exists() and folder and _NAME.fullmatch(name):
        store = Path(folder) / "store"
        if not store.is_dir():
            raise TraceError(f"{folder}: is no run: it has no store/")
        if name not in (held := names(store)):
            raise TraceError(f"{text}: there is no such checkpoint; the run has {', '.join(held) or 'none'}")
        return CheckpointAt(store, name)
    if path.is_file() and path.parent.name == "manifests":
        return CheckpointAt(path.parent.parent, path.stem)
    if not path.exists():
        raise TraceError(f"{text}: does not exist; give a run's folder, one with a {TRACE_FILE}, or RUN:CHECKPOINT")
    return path


def read_side(path: Path) -> Side:
    """Raises TraceError."""
    if path.is_file():
        return Side(Trace.read(path), metadata={"path": str(path)})
    if (path / TRACE_FILE).is_file():
        return Side(Trace.read(path / TRACE_FILE), metadata={"path": str(path)})
    if (path / "history").is_dir():
        return read_run(path)
    inside = sorted(str(found.parent) for found in path.glob(f"*/{TRACE_FILE}"))
    if inside:
        raise TraceError(f"{path}: holds several traces, give one of them: {', '.join(inside)}")
    raise TraceError(f"{path}: is neither a run (history/) nor a lab's folder ({TRACE_FILE})")


def _swapped(a: Trace, b: Trace) -> bool:
    """Whether A is the run that recovered: the one that began less often is the one to hold the other against."""
    return len(by_attempt(a.records)) > len(by_attempt(b.records))


def _report(a: Side, b: Side) -> dict[str, Any]:
    swapped = _swapped(a.trace, b.trace)
    if swapped:
        a, b = b, a
    comparison = compare(a.trace, b.trace)
    if not comparison.counted.records and not comparison.counted.starts:
        raise TraceError(f"{a.trace.label} and {b.trace.label} have no step in common: there is nothing to compare")
    reference = Reference.of(a.trace)
    divergences = [_divergence(reference, a.trace, b.trace, each) for each in comparison.divergences]
    length = diagnose_length(reference, b.trace)
    problems = [f"{name}: {problem}" for name, side in (("A", a), ("B", b)) for problem in side.problems]
    result = DIFFERENT if comparison.differs else UNKNOWN if problems else SAME
    return {
        "result": result, "what": "traces", "swapped": swapped, "a": _side(a), "b": _side(b),
        "compared": {
            "records": comparison.counted.records, "starts": comparison.counted.starts,
            "steps": comparison.counted.steps, "parts": list(comparison.counted.parts),
            "fields": ["sample ids", "learning rate", "loss", "gradient norm", "skipped", "samples seen"],
        },
        "structure": [_difference(each) for each in comparison.structure],
        "first": next(iter(divergences), None), "others": divergences[1:],
        "length": None if length is None else _finding(length),
        "magnitude": _magnitude(a, b, comparison), "settings": _differing(a.settings, b.settings),
        "metadata": _differing(a.metadata, b.metadata), "not_compared": list(comparison.not_compared),
        "problems": problems,
    }  # fmt: skip


def _side(side: Side) -> dict[str, Any]:
    trace = side.trace
    return {
        "label": trace.label, "path": side.metadata.get("path"), "ranks": trace.ranks, "records": len(trace.records),
        "attempts": len(by_attempt(trace.records).keys() | by_attempt(trace.starts).keys()),
        "target_step": trace.target_step,
    }  # fmt: skip


def _divergence(reference: Reference, a: Trace, b: Trace, divergence: Divergence) -> dict[str, Any]:
    found: Iterable[Finding] = ()
    if divergence.inherited is None:
        found = diagnose(reference, b if divergence.side == "B" else a, divergence)
    return {
        "side": divergence.side, "attempt": divergence.attempt, "step": divergence.step,
        "where": "restored" if divergence.restored else "update", "inherited_from": divergence.inherited,
        "earliest_update": divergence.earliest_update, "changed_update": divergence.changed_update,
        "differences": [_difference(each) for each in divergence.differences],
        "changes": [_difference(each) for each in divergence.changes],
        "causes": [_finding(finding) for finding in found],
    }  # fmt: skip


def _difference(difference: Difference) -> dict[str, Any]:
    sizes = {name: value if value is not None and math.isfinite(value) else None  # JSON has no infinities
             for name, value in (("magnitude", difference.magnitude), ("relative", difference.relative))}  # fmt: skip
    return {"part": str(difference.part), "ranks": list(difference.ranks), "detail": difference.detail, **sizes}


def _finding(finding: Finding) -> list[dict[str, str]]:
    return [{"kind": cause.kind.value, "part": str(cause.part), "text": cause.text} for cause in finding.causes]


def _differing(a: Mapping[str, str], b: Mapping[str, str]) -> dict[str, list[str | None]]:
    return {name: [a.get(name), b.get(name)] for name in sorted(a.keys() | b.keys()) if a.get(name) != b.get(name)}


def _magnitude(a: Side, b: Side, comparison: Comparison) -> dict[str, Any] | None:
    """From the first checkpoint, at or after the difference, that differs and whose shards both runs still hold.

    None if both hold none of one moment; without parts if those that both hold are equal.
    """
    first, found = comparison.first, None
    if first is None or a.folder is None or b.folder is None:
        return None
    restored = {s.checkpoint for s in b.trace.starts if s.attempt == first.attempt} if first.side == "B" else set()
    for mine, theirs in _common(a.folder / "store", b.folder / "store", first, restored):
        try:
            x, y = load(a.folder / "store", mine), load(b.folder / "store", theirs)
        except (Damaged, Unavailable):  # it is the audit's to say so; the difference is found without it
            continue
        if x.whole and y.whole:
            parts = [_part(part) for part in part_differences(x, y)]
            found = {"step": x.manifest.step, "a": mine, "b": theirs, "parts": parts}
            if parts:
                break
    return found


def _common(a: Path, b: Path, first: Divergence, restored: Collection[str | None]) -> list[tuple[str, str]]:
    """Names of checkpoints of one moment in both stores, from the difference on, that can show it.

    These are what the attempt restored, and what it and later ones saved.
    """
    try:
        mine, theirs = ([m for name in names(store) if (m := _NAME.fullmatch(name))] for store in (a, b))
    except Unavailable:  # only the history was kept
        return []
    return [
        (x.string, y.string)
        for y in theirs
        for x in mine
        if x["moment"] == y["moment"] and int(y["step"]) >= first.step
        and (first.side != "B" or int(y["attempt"]) >= first.attempt or y.string in restored)
    ]


def _part(part: PartDifference) -> dict[str, Any]:
    return {"part": part.part, "rank": part.rank, "items": [_difference(item) for item in part.items]}


def _checkpoint_report(a: Checkpoint, b: Checkpoint, comparison: CheckpointComparison) -> dict[str, Any]:
    return {
        "result": DIFFERENT if comparison.differs else SAME, "what": "checkpoints",
        "a": _checkpoint_side(a), "b": _checkpoint_side(b), "compared": {"parts": comparison.checked},
        "structure": [{"part": "checkpoint", "ranks": [], "detail": text} for text in comparison.structure],
        "parts": [_part(part) for part in comparison.parts],
        "causes": [_finding(finding) for finding in comparison.findings],
        "earliest_update": comparison.earliest_update,
        "settings": {name: list(pair) for name, pair in comparison.settings.items()},
        "metadata": {name: list(pair) for name, pair in comparison.metadata.items()},
    }  # fmt: skip


def _checkpoint_side(side: Checkpoint) -> dict[str, Any]:
    return {"label": side.label, "step": side.manifest.step, "attempt": side.manifest.attempt,
            "ranks": side.manifest.world, "shards": side.whole}  # fmt: skip
