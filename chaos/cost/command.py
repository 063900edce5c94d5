"""`killpoint intervals` from its experiment to its result."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from chaos.cost.bootstrap import Bootstrap
from chaos.cost.files import Journal, write_result
from chaos.cost.predict import Setting
from chaos.cost.recommend import recommend
from chaos.cost.samples import samples
from chaos.cost.study import Study, Watch
from chaos.cost.table import row
from chaos.cost.values import FORMAT, Asked, Costs, Intervals, Kill, Recommendation, Row, Run, Verdict
from chaos.errors import IntervalsError
from chaos.experiment import Experiment
from chaos.interrupts import Interrupts
from chaos.life import Place
from chaos.runfacts import code_version
from trainers.spec import code_digest

_SPARES = 2
_UNEXPLAINED = 0.05


def intervals(experiment: Experiment, folder: Path, asked: Asked, watch: Watch) -> Intervals:
    """Conducts what is not done yet, and evaluates. Raises IntervalsError, and what stops a run before it starts.

    An interrupt ends it, with what there is as its result: the same command with the same folder goes on.
    """
    with Interrupts() as interrupts, Place(interrupts, reuse=True, spares=_SPARES) as place:
        return intervals_in(place, experiment, folder, asked, watch)


def intervals_in(place: Place, experiment: Experiment, folder: Path, asked: Asked, watch: Watch) -> Intervals:
    """As `intervals`, in a place that is there already and takes processes up again."""
    _require(experiment, asked)
    journal = Journal(folder, {
        "config": experiment.config_digest, "code": code_digest([]), "every": list(asked.every), "kills": asked.kills,
        "spread": asked.spread, "seed": asked.seed,
    })  # fmt: skip
    study, complete = Study(experiment, folder, asked, place, watch, journal), True
    try:
        study.conduct()
    except KeyboardInterrupt:
        complete = False
    runs = tuple(journal.runs.values())
    result = evaluate(experiment, asked, study.setting(1), runs, study.kills(), study.costs, complete)
    write_result(folder, result)
    return result


def evaluate(
    experiment: Experiment, asked: Asked, setting: Setting, runs: Sequence[Run], kills: Sequence[Kill],
    costs: Mapping[str, Costs], complete: bool,
) -> Intervals:  # fmt: skip
    """The result. Pure."""
    boot = Bootstrap(asked.seed, asked.resamples)
    alone_s = samples(runs, costs, kills).alone_s
    rows = tuple(row(every, runs, kills, costs, alone_s, asked.mtbf_s, boot) for every in asked.every)
    recommendation = recommend(asked, runs, kills, costs, boot)
    return Intervals(
        FORMAT, verdict_of(runs, kills, complete), complete, asked, experiment.run.workload, setting.ranks,
        setting.steps, setting.microbatches, setting.global_batch, experiment.config_digest, code_version(),
        reproduce_command(experiment, asked), rows, recommendation, tuple(runs), tuple(kills),
        (*_notes(experiment, asked, kills, costs, recommendation, setting), *_noise(rows, recommendation)),
    )  # fmt: skip


def verdict_of(runs: Sequence[Run], kills: Sequence[Kill], complete: bool) -> Verdict:
    """Invalid: a run is, or a cost was not the one expected. Unknown: a run is, or not every kill was measured."""
    if any(run.verdict == "invalid" for run in runs) or any(kill.met is False for kill in kills):
        return "invalid"
    whole = complete and runs and all(run.verdict == "valid" for run in runs) and all(kill.met for kill in kills)
    return "valid" if whole and kills else "unknown"


def reproduce_command(experiment: Experiment, asked: Asked) -> str:
    """The one command that does the same again, from any folder."""
    file = [] if experiment.path is None else [str(experiment.path.resolve())]
    limits = [] if asked.max_redo_s is None else ["--max-redo-s", f"{asked.max_redo_s:g}"]
    limits += [] if asked.max_redo_steps is None else ["--max-redo-steps", str(asked.max_redo_steps)]
    return shlex.join([
        "killpoint", "intervals", *file, "--every", ",".join(map(str, asked.every)), "--kills", str(asked.kills),
        "--spread", asked.spread, "--seed", str(asked.seed), "--mtbf-s", f"{asked.mtbf_s:g}", *limits,
    ])  # fmt: skip


def _require(experiment: Experiment, asked: Asked) -> None:
    if not asked.every or any(each < 1 for each in asked.every) or len(set(asked.every)) < len(asked.every):
        raise IntervalsError("--every: needs different whole numbers of steps, each at least 1: --every 1,5,20")
    if experiment.run.ranks < 1 or asked.kills < 1:
        raise IntervalsError("--kills: at least 1 for each interval")


def _notes(
    experiment: Experiment, asked: Asked, kills: Sequence[Kill], costs: Mapping[str, Costs],
    recommendation: Recommendation | None, setting: Setting,
) -> list[str]:  # fmt: skip
    found = []
    run = experiment.run
    if setting.steps != run.steps:
        found.append(f"each run has {setting.steps} steps, not the experiment's {run.steps}: two of the longest "
                     "interval, and some more")
    if run.save_every_microbatches is not None:
        found.append("save_every_microbatches was left out: an interval is measured in whole steps")
    cold = [kill for kill in kills if kill.recovery is not None and kill.recovery.standby != "warm"]
    if cold:
        found.append(f"{len(cold)} of {len(kills)} recoveries found no warm standby; they are in the rows, and in the "
                     "recommendation only if no other was seen")
    shares = [k.recovery.unexplained_s / k.recovery.whole_s for k in kills
              if k.recovery is not None and k.recovery.unexplained_s is not None and k.recovery.whole_s]  # fmt: skip
    over = sum(1 for share in shares if share > _UNEXPLAINED)
    if over:
        found.append(f"in {over} of {len(shares)} recoveries the parts leave more than 5 % of the whole unexplained")
    unsure_s = max((kill.recovery.uncertainty_s for kill in kills if kill.recovery is not None), default=0.0)
    if unsure_s > 0:
        found.append("the clocks of several hosts were compared by the runs' own messages: what lies between two hosts "
                     f"is known to ±{unsure_s * 1e3:,.1f} ms")  # fmt: skip
    if not any(step.in_flight == 0.0 for each in costs.values() for step in each.steps):
        found.append("every step had a save in flight: what a save slows them by cannot be told from what they take")
    if recommendation is not None and not _within(recommendation):
        found.append(f"the recommended interval lies outside of those that were run ({recommendation.tried[0]} to "
                     f"{recommendation.tried[1]} steps): there it rests on the model alone")
    return found


def _noise(rows: Sequence[Row], recommendation: Recommendation | None) -> Iterator[str]:
    """What the confidence intervals say, and what not."""
    beyond = [str(row.every) for row in rows
              if (row.save_s is not None and row.save_s.low < 0) or (row.goodput is not None and row.goodput.high > 1)]
    if beyond:
        yield (f"every {', '.join(beyond)}: what a save costs, or goodput, reaches beyond what can be (below 0, over "
               "100 %): the part of a save's cost that is slower steps is a difference of step times, and so few of "
               "them leave its sign open; longer runs (`steps`) narrow it")  # fmt: skip
    if recommendation is not None:
        yield "the goodput of the recommendation is of the costs of all rows together, that of a row of its own"
    yield "confidence intervals tell what so many observations leave open, not how another machine or load would do"


def _within(recommendation: Recommendation) -> bool:
    low, high = recommendation.tried
    return low <= recommendation.every.value <= high
