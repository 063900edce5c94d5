"""Reading shell: a run folder → what costs are measured from. Only the history is read; the store is not touched."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from chaos.audit.decode import decode
from chaos.audit.formats import FormatError
from chaos.audit.read_history import read_receipts
from chaos.cost.records import KINDS, Opened, Seen, Struck, Witnessed
from storage.errors import HistoryBroken
from storage.history import read_history


def read_run(folder: Path) -> Witnessed:
    """The run's events and receipts. Raises HistoryBroken if a line is not what its format says, or NotThere."""
    events = [event for path in sorted((folder / "history").glob("*.jsonl")) for event in _events(path)]
    receipts, _problems = read_receipts(folder / "history" / "receipts")  # what is none is the auditor's affair
    strikes = tuple(
        Struck(r.attempt, r.role, r.rank, r.point, r.hit, r.target.pid, r.target.start_ticks, r.boot, r.t_ns)
        for r in receipts if r.kind != "damage"
    )  # fmt: skip
    return Witnessed(tuple(events), strikes)


def _events(path: Path) -> Iterator[Seen]:
    kinds, boot = KINDS.get(path.name.partition("-")[0], {}), ""
    if not kinds:
        return
    for line in read_history(path).lines:
        kind = kinds.get(line.event)
        if kind is None:
            continue
        try:
            what = decode(kind, line.body, f"event {line.event}")
        except FormatError as error:
            # A run of an earlier release lacks instants that this one records: its costs cannot be told from it.
            raise HistoryBroken(f"{path}, line {line.n + 1}", f"{error}, which its costs are measured from") from error
        if isinstance(what, Opened):
            boot = what.boot
        yield Seen(path.name, boot, line.body["t_ns"], line.body["attempt"], what)
