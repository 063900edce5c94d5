"""One row for each interval, with its confidence intervals. Pure: runs, kills and costs in, rows out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict

import numpy as np

from chaos.cost.bootstrap import F64, Bootstrap, estimate
from chaos.cost.model import goodput
from chaos.cost.samples import Samples, samples
from chaos.cost.values import PARTS, Costs, Estimate, Kill, PartCost, Recovery, Row, Run, Spreading


def row(
    every: int, runs: Sequence[Run], kills: Sequence[Kill], costs: Mapping[str, Costs], alone_s: Sequence[float],
    mtbf_s: float, boot: Bootstrap,
) -> Row:  # fmt: skip
    """alone_s: steps without a save beside them, of all intervals together: with the shortest there are none."""
    own = [run for run in runs if run.every == every]
    struck = [kill for kill in kills if kill.every == every]
    seen = samples(own, costs, struck)
    recoveries = seen.recoveries
    baseline = seen.alone_s or tuple(alone_s)

    def spread(name: str) -> Spreading | None:
        return boot.spread([value for each in recoveries if (value := getattr(each, name)) is not None])

    save_s, overhead, goodput_ = _saving(every, seen, baseline, mtbf_s, boot)
    return Row(
        every, len(own), len(struck),
        exact=sum(1 for kill in struck if kill.expected.exact),
        met=sum(1 for kill in struck if kill.met), missed=sum(1 for kill in struck if kill.met is False),
        step_s=boot.mean(seen.alone_s), step_saving_s=boot.mean(seen.beside_s),
        stall_s=boot.mean([save.stall_s for save in seen.saves]),
        wait_s=boot.mean([save.wait_s for save in seen.saves]),
        background_s=boot.mean(seen.background_s),
        contention_s=contention(seen, baseline, boot)[0],
        save_bytes=boot.mean([float(save.bytes) for save in seen.saves if save.bytes is not None]),
        save_s=save_s, overhead=overhead, goodput=goodput_,
        redo_steps=spread("redo_steps"), redo_samples=spread("redo_samples"), redo_s=spread("redo_s"),
        lost_s=spread("lost_s"), whole_s=spread("whole_s"), downtime_s=spread("downtime_s"),
        parts=tuple(_parts(recoveries, boot)),
        unexplained=boot.mean([e.unexplained_s / e.whole_s for e in recoveries
                               if e.unexplained_s is not None and e.whole_s]),
    )  # fmt: skip


def contention(seen: Samples, baseline: Sequence[float], boot: Bootstrap) -> tuple[Estimate | None, F64]:
    """A save's extra step time, and its replicates: what steps beside saves took longer than others, over the saves.

    Without steps beside a save, or without others, it cannot be told: None and zeros.
    """
    if not seen.touched_s or not baseline or not seen.saves_of_touched:
        return None, np.zeros(boot.resamples)
    steps_a_save = len(seen.touched_s) / seen.saves_of_touched
    extra = (float(np.mean(seen.touched_s)) - float(np.mean(baseline))) * steps_a_save
    replicates = (boot.means(seen.touched_s) - boot.means(baseline)) * steps_a_save
    return estimate(extra, replicates, len(seen.touched_s)), replicates


def _saving(
    every: int, seen: Samples, baseline: Sequence[float], mtbf_s: float, boot: Bootstrap
) -> tuple[Estimate | None, Estimate | None, Estimate | None]:
    """What a save costs, its share of the steps' time, and the goodput; each with all of its parts resampled."""
    if not seen.saves or not baseline:
        return None, None, None
    blocked = [save.stall_s + save.wait_s for save in seen.saves]
    extra, extras = contention(seen, baseline, boot)
    save_s = float(np.mean(blocked)) + (extra.value if extra else 0.0)
    saves_s, steps_s = boot.means(blocked) + extras, boot.means(baseline)
    step_s, n = float(np.mean(baseline)), len(blocked)
    cost = estimate(save_s, saves_s, n)
    overhead = estimate(save_s / (every * step_s), saves_s / (every * steps_s), n)
    lost = [each.lost_s for each in seen.recoveries if each.lost_s is not None]
    if not lost or not seen.downtime_s:
        return cost, overhead, None
    value = goodput(every * step_s, every * step_s + save_s, np.mean(lost), np.mean(seen.downtime_s), mtbf_s)
    replicates = goodput(
        every * steps_s, every * steps_s + saves_s, boot.means(lost), boot.means(seen.downtime_s), mtbf_s
    )
    return cost, overhead, estimate(float(value), replicates, len(lost))


def _parts(recoveries: Sequence[Recovery], boot: Bootstrap) -> list[PartCost]:
    known = [asdict(each.parts) for each in recoveries if each.parts is not None]
    columns = [(name, [each[f"{name}_s"] for each in known]) for name in PARTS]
    columns.append(("unexplained", [e.unexplained_s for e in recoveries if e.unexplained_s is not None]))
    return [PartCost(name, found) for name, values in columns if (found := boot.mean(values)) is not None]
