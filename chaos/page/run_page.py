"""One run as values: evidence and verdict in, everything that its part of the page says out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from chaos.audit.evidence import Evidence
from chaos.audit.verdict import Verdict
from chaos.cost.clocks import Clocks
from chaos.cost.values import Recovery
from chaos.page import words
from chaos.page.costs import costs, waiting
from chaos.page.ledger_map import ledger_map
from chaos.page.lineage import lineage
from chaos.page.measured import Measured
from chaos.page.pages import RunPage
from chaos.page.timeline import run_clock, timeline, updates

_WORST = ("valid", "unknown", "invalid")
_GONE = ("Its store is gone. The verdict is the one of verdict.json: nothing can be judged again.",)


def run_page(
    evidence: Evidence,
    measured: Measured,
    verdict: Verdict,
    recorded: Mapping[str, Any] | None,
    parts: Sequence[Recovery],
    folder: str,
    hosts: Clocks | None = None,
) -> RunPage:
    """verdict: of this very evidence. recorded: verdict.json, None without one. parts: of recoveries, where known.

    hosts: how the clocks of several compare.
    """
    now = verdict.to_json()
    gone = recorded is not None and not evidence.store.present  # what is gone was there when it was judged
    body = recorded if gone and recorded is not None else now
    done = updates(evidence, measured)
    clock = run_clock(evidence, done, hosts)
    shown = timeline(evidence, measured, clock, done, verdict.recoveries)
    found = costs(verdict.recoveries, parts)
    line, begun = lineage(evidence), evidence.begun
    judged, faults = words.invariants(body), words.struck(body)
    overall = body["verdict"] if gone else _overall(now["verdict"], recorded)
    return RunPage(
        title=verdict.run or folder.rstrip("/").rpartition("/")[2],
        folder=folder,
        verdict=overall,
        headline=words.HEADLINES.get(overall, overall),
        sentences=(
            *words.sentences(overall, judged, faults, found),
            *(_GONE if gone else _disagreement(now["verdict"], recorded)),
        ),
        facts=tuple(_facts(verdict)),
        reproduce=verdict.reproduce or "",
        numbers=words.numbers(
            shown, line, found, begun.steps if begun else None, begun.global_batch if begun else None
        ),
        invariants=judged,
        struck=faults,
        costs=found,
        unseen=tuple(map(str, body["unseen"])),
        timeline=shown,
        lineage=line,
        ledger=ledger_map(evidence),
        waiting=waiting(evidence, clock, done, shown.end_us),
    )


def _overall(now: str, recorded: Mapping[str, Any] | None) -> str:
    """The worse of what the evidence says now and what was written down when the run ended."""
    before = None if recorded is None else recorded.get("verdict")
    return max((word for word in (now, before) if word in _WORST), key=_WORST.index, default=now)


def _disagreement(now: str, recorded: Mapping[str, Any] | None) -> tuple[str, ...]:
    before = None if recorded is None else recorded.get("verdict")
    if recorded is None or before == now:
        return ()
    return (
        f"verdict.json says {before}; judged again from what is on disk now it is {now}. The worse of both is shown.",
    )


def _facts(verdict: Verdict) -> Iterator[tuple[str, str]]:
    yield "run", verdict.run or "unknown"
    yield "seed", "unknown" if verdict.seed is None else str(verdict.seed)
    yield "configuration", verdict.config_digest or "unknown"
    yield "code", verdict.code_version or "unknown"
