"""The page's parts: values → what the template prints, each figure with its words, its key and its table. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from chaos.page.figures import intervals, ledger, lineage, recovery, sweep, timeline
from chaos.page.figures.theme import Spec
from chaos.page.intervals_page import interval
from chaos.page.pages import IntervalsPage, Number, RunPage, SweepPage
from chaos.page.values import Fate, LedgerMap, Timeline
from chaos.page.words import count, part_numbers, seconds


@dataclass(frozen=True)
class Table:
    """For everybody who does not see the figure. numeric: columns that are set to the right."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    numeric: frozenset[int] = frozenset()


@dataclass(frozen=True)
class Figure:
    """name: of its files. timeline: of the one that is drawn from packed data."""

    name: str
    spec: Spec
    caption: str
    timeline: Timeline | None = None


@dataclass(frozen=True)
class Part:
    """key: (sample, words) of the legend, where a sample names a drawing of the template."""

    name: str
    title: str
    lead: str
    figures: tuple[Figure, ...] = ()
    key: tuple[tuple[str, str], ...] = ()
    alarms: tuple[str, ...] = ()
    calm: str = ""
    numbers: tuple[Number, ...] = ()
    table: Table | None = None
    table_title: str = ""
    bullets: tuple[str, ...] = ()


def run_parts(page: RunPage) -> Iterator[Part]:
    """In the order of the page."""
    yield _timeline(page)
    yield _ledger(page.ledger)
    yield _lineage(page)
    if page.costs:
        yield _recoveries(page)
    if page.waiting:
        yield _waiting(page)
    yield Part("unseen", "What this run could not have seen",
               "A valid verdict says nothing about these. Read them before you trust one.",
               bullets=page.unseen)  # fmt: skip


def _timeline(page: RunPage) -> Part:
    shown = page.timeline
    updates = sum(int(lane.steps.updates.sum()) for lane in shown.lanes)
    redone = sum(int(lane.steps.redone.sum()) for lane in shown.lanes)
    saves = sum(len(lane.saves) for lane in shown.lanes)
    kills = sum(struck.fired for struck in page.struck)
    ticks = sum(len(lane.microbatches.at_us) for lane in shown.lanes)
    caption = (
        f"{shown.end_us / 1e6:,.1f} s, {count(updates, 'update')} of {count(len(shown.lanes), 'rank')} (each once a "
        f"rank), of them {redone:,} redone; {count(saves, 'save')}, {count(kills, 'kill')}, "
        f"{count(len(page.costs), 'recovery', 'recoveries')}. "
        + (f"{ticks:,} microbatches appear when you zoom in. " if ticks
           else "This run did not record when its microbatches were done. ")
        + ("" if shown.axes < 2 else f"Instants are of {shown.axes} boots or hosts, whose clocks do not compare: "
           "they are drawn one after the other. ")
        + ("" if not shown.uncertainty_s else "The clocks of several hosts were compared by the run's own messages: "
           f"what lies between two hosts is known to ±{shown.uncertainty_s * 1e3:,.1f} ms. ")
    )  # fmt: skip
    key = (("kept", "step"), ("tick", "microbatch done"), ("redone", "step done again"),
           ("lost", "step whose work was lost"), ("stall", "save: training waits"),
           ("background", "save: in the background"), ("kill", "kill"), ("detected", "detected"),
           ("published", "checkpoint published"),
           ("p1", "detect"), ("p2", "reacquire"), ("p3", "load"), ("redone", "redo"))  # fmt: skip
    rows = tuple(
        (f"{mark.at_us / 1e6:.3f}", mark.kind.value, mark.who, mark.text)
        for mark in shown.marks if mark.kind.value != "published"
    )[:400]  # fmt: skip
    table = Table(("seconds", "what", "who", "in words"), rows, frozenset({0}))
    spec = timeline.figure(shown, filled=False)
    lead = "Every rank from the first step to the last. Bars are optimizer updates; hatched ones were trained again."
    return Part("timeline", "Timeline", lead, (Figure("timeline", spec, caption, shown),), key, table=table,
                table_title="Kills, detections and attempts as a table")  # fmt: skip


def _ledger(shown: LedgerMap) -> Part:
    if shown.problem:
        return Part("ledger", "Sample ledger", "Which samples the model was trained on.", bullets=(shown.problem,))
    bad = {fate: shown.counts.get(fate, 0) for fate in (Fate.GAP, Fate.REPEATED, Fate.WRONG, Fate.UNKNOWN)}
    names = {Fate.GAP: "never applied", Fate.REPEATED: "applied more than once", Fate.WRONG: "applied wrongly",
             Fate.UNKNOWN: "unknown"}  # fmt: skip
    total = shown.updates * shown.batch
    alarms = tuple(fault.words for fault in shown.faults[: ledger.BADGES])
    if len(shown.faults) > ledger.BADGES or shown.unshown:
        rest = sum(bad.values()) - sum(fault.positions for fault in shown.faults[: ledger.BADGES])
        alarms += (f"and {count(rest, 'more position')}",)
    calm = "" if alarms else (
        f"All {total:,} positions of {count(shown.updates, 'step')} were applied exactly once, by the step that the "
        "plan says: no gap, no duplicate."
    )  # fmt: skip
    caption = (
        f"n = {total:,} positions: {shown.updates:,} steps × {shown.batch:,} samples of the global batch; "
        + ", ".join(f"{bad[fate]:,} {name}" for fate, name in names.items())
        + f". Step s applies positions {shown.batch} s to {shown.batch} s + {shown.batch - 1}. Along the lineage only: "
        "what was "
        "thrown away does not count. Dashed lines: another attempt goes on."
    )
    key = (("kept", "applied once (shades tell attempts apart)"), ("gap", "gap: never applied"),
           ("repeated", "duplicate: applied twice or more"),
           ("wrong", "wrong sample, content or step"), ("unknown", "ledger file lost"))  # fmt: skip
    rows = tuple((str(n), fault.fate.name.lower(), f"{fault.positions:,}", fault.words)
                 for n, fault in enumerate(shown.faults, 1))  # fmt: skip
    table = Table(("", "fault", "positions", "in words"), rows, frozenset({0, 2})) if rows else None
    lead = "Which samples the model was trained on: every position of the plan has to be applied exactly once."
    return Part("ledger", "Sample ledger", lead, (Figure("ledger", ledger.figure(shown), caption),), key, alarms, calm,
                table=table, table_title="Faults as a table")  # fmt: skip


def _lineage(page: RunPage) -> Part:
    shown = page.lineage
    rejected = [(node, attempt, why) for node in shown.nodes for attempt, why in node.rejected_by]
    alarms = tuple(f"attempt {attempt} rejected {node.name}: {why}" for node, attempt, why in rejected[:12])
    caption = (
        f"n = {len(shown.nodes) + shown.left_out:,} published checkpoints, {count(len(shown.starts), 'attempt')}, "
        f"{len(rejected):,} rejected at a choice. "
        + (f"{shown.left_out:,} checkpoints at which nothing parts are left out. " if shown.left_out else "")
    )
    key = (("node", "checkpoint of the lineage"), ("retired", "its shards were retired"),
           ("chosen", "chosen by an attempt"),
           ("kill", "rejected"), ("abandoned", "abandoned"), ("lost", "work that was lost"),
           ("restart", "restart"))  # fmt: skip
    rows = tuple(
        (node.name, f"{node.step:,}", node.standing.value + (", retired" if node.retired else ""),
         ", ".join(f"attempt {n}" for n in node.chosen_by), "; ".join(f"attempt {n}: {why}" for n,
                                                                      why in node.rejected_by),
         node.damage)
        for node in shown.nodes
    )  # fmt: skip
    table = Table(
        ("checkpoint", "step", "standing", "chosen by", "rejected by, and why", "damage now"), rows, frozenset({1})
    )
    lead = "What each attempt started from. Everything that the final state descends from is the lineage."
    return Part("lineage", "Checkpoints and their lineage", lead, (Figure("lineage", lineage.figure(shown), caption),),
                key,
                alarms, table=table, table_title="All checkpoints as a table")  # fmt: skip


def _recoveries(page: RunPage) -> Part:
    columns = ["attempt", "restored step", "to first new step, s", "redone steps", "redone samples"]
    parts = list(dict.fromkeys(part for cost in page.costs for part, _ in cost.parts))
    rows = tuple(
        (str(cost.attempt), _number(cost.restored_step),
         "–" if cost.first_step_s is None else seconds(cost.first_step_s),
         _number(cost.redo_steps), _number(cost.redo_samples),
         *(next((seconds(s) for name, s in cost.parts if name == part), "–") for part in parts))
        for cost in page.costs
    )  # fmt: skip
    table = Table((*columns, *(f"{part}, s" for part in parts)), rows, frozenset(range(len(columns) + len(parts))))
    known = [cost for cost in page.costs if cost.parts]
    caption = (f"n = {count(len(known), 'recovery', 'recoveries')} with known parts of {len(page.costs)}; from strike "
               "to caught up.")  # fmt: skip
    figure = Figure("recoveries", recovery.recovery(known), caption)
    return Part("recoveries", "What recovery cost",
                "From the kill to the step that had been reached, cut into what was waited for.",
                (figure,) if known else (), numbers=part_numbers(page.costs), table=table,
                table_title="All recoveries as a table")  # fmt: skip


def _waiting(page: RunPage) -> Part:
    wait, depth = recovery.waiting(page.waiting)
    updates = sum(each.updates for each in page.waiting)
    bins = f"n = {updates:,} updates in {len(page.waiting):,} bins of time."
    worst = max(page.waiting, key=lambda each: each.wait_max_s)
    return Part(
        "input", "Input wait and queue depth",
        f"Whether training waited for data. The longest wait was {seconds(worst.wait_max_s)} s, in a step of rank "
        f"{worst.rank}.",
        (Figure("input-wait", wait, f"Input wait of a step, mean of each bin (line) and greatest (points). {bins}"),
         Figure("queue-depth", depth,
                f"Microbatches ready when the step was done, mean (line) and least (points). {bins}")),
    )  # fmt: skip


def sweep_parts(page: SweepPage) -> Iterator[Part]:
    """In the order of the page."""
    key = (("background", "so many trials, all as they have to be"),
           ("bad",
            "3 of 4: the others are I invalid, U unknown, L late, N not struck, R redo not as predicted"))  # fmt: skip
    trials = sum(cell.trials for cell in page.cells)
    alarms = tuple(f"{row.name}: {row.ending}. {row.why}" for row in page.failing[:12])
    rows = tuple(
        (cell.point, cell.who, str(cell.trials), str(cell.trials - cell.bad), cell.letters) for cell in page.cells
    )
    yield Part("map", "Kill points × processes", "Where it was killed, and whether it came back as it must.",
               (Figure("map", sweep.points(page.cells),
                       f"n = {count(trials, 'trial')} at {count(len(page.cells), 'place')}. No cell: that "
                       "process does not pass that point, or no trial was asked for."),),
               key, alarms, table=Table(("point", "process", "trials", "as they have to be", "wrong"), rows,
                                        frozenset({2, 3})),
               table_title="The map as a table")  # fmt: skip
    redo = sweep.redo(page.trials)
    if redo is not None:
        known = sum(row.redo_steps is not None and row.low is not None for row in page.trials)
        yield Part("redo", "Redo, predicted and measured", "What a kill must cost was written down before it struck.",
                   (Figure("redo", redo,
                           f"n = {count(known, 'recovery', 'recoveries')}; one row for each range and number, "
                           "larger dots for more of them."),),
                   (("range", "predicted range, steps"), ("dot", "measured, as predicted"),
                    ("miss", "measured, not as predicted")))  # fmt: skip
    first = sweep.first_step(page.trials)
    if first is not None:
        known = sum(row.first_step_s is not None for row in page.trials)
        yield Part("first-step", "Kill to first new step", "How long training stood still.",
                   (Figure("first-step", first, f"n = {count(known, 'recovery', 'recoveries')}."),))  # fmt: skip
    failing = tuple((row.name, row.ending, row.why, row.reproduce) for row in page.failing)
    if failing:
        yield Part("failing", "Trials that failed", "Each with the one command that repeats it.",
                   table=Table(("trial", "ended", "why", "reproduce"), failing),
                   table_title="Failing trials")  # fmt: skip


def intervals_parts(page: IntervalsPage) -> Iterator[Part]:
    """In the order of the page."""
    result, rows = page.result, page.result.rows
    judged = [kill for kill in result.kills if kill.met is not None]
    wrong = tuple(
        f"{kill.run}, attempt {kill.attempt}, every {kill.every} steps: not as predicted"
        for kill in judged
        if not kill.met
    )
    yield Part("redo", "Redo against interval",
               "What is trained again after a kill: predicted before it struck, and measured.",
               (Figure("redo", intervals.redo(result.kills),
                       f"n = {count(len(judged), 'recovery', 'recoveries')}, in each interval "
                       "by how long after a save fell due the kill struck."),),
               (("range", "predicted, steps"), ("dot", "measured, as predicted"),
                ("miss", "measured, not as predicted")), wrong)  # fmt: skip
    columns = ("every, steps", "kills", "redone steps, mean", "p95", "worst", "lost work, s", "a save costs, ms",
               "overhead, %",
               "to first new step, s", "goodput, %")  # fmt: skip
    table = tuple(
        (f"{row.every:,}", str(row.kills), interval(row.redo_steps.mean if row.redo_steps else None, 1, 1),
         f"{row.redo_steps.p95:.1f}" if row.redo_steps else "–",
         f"{row.redo_steps.worst:.0f}" if row.redo_steps else "–",
         interval(row.lost_s.mean if row.lost_s else None, 1, 3), interval(row.save_s, 1e3, 1),
         interval(row.overhead, 100, 2),
         interval(row.whole_s.mean if row.whole_s else None, 1, 3), interval(row.goodput, 100, 2))
        for row in rows
    )  # fmt: skip
    goodput = f"Useful step time over wall time at a failure every {result.asked.mtbf_s:g} s on average."
    kills = sum(row.kills for row in rows)
    caption = (f"Dots: measured, n = {count(kills, 'kill')}, with 95 % intervals of {result.asked.resamples:,} "
               "resamples. Dashed: the model. Green band: 95 % interval of the recommendation.")  # fmt: skip
    yield Part("goodput", "Goodput, and which interval to choose", goodput,
               (Figure("goodput", intervals.goodput(result), caption),),
               table=Table(columns, table, frozenset(range(len(columns)))),
               table_title="All intervals as a table")  # fmt: skip
    saves = sum(row.save_s.observations for row in rows if row.save_s is not None)
    yield Part("overhead", "What saves cost",
               "Stall, waiting and slower steps, of the time of the steps between two saves.",
               (Figure("overhead", intervals.overhead(rows), f"n = {count(saves, 'save')}; with 95 % intervals."),
                ))  # fmt: skip
    if any(row.parts for row in rows):
        recoveries = sum(row.whole_s.mean.observations for row in rows if row.whole_s is not None)
        yield Part("parts", "What recovery costs", "Mean seconds from the kill to the first new step, by part.",
                   (Figure("parts", intervals.parts(rows), f"n = {count(recoveries, 'recovery', 'recoveries')}."),
                    ))  # fmt: skip
    yield Part("notes", "What these numbers do not say", "Read them before you choose.", bullets=result.notes)


def _number(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"
