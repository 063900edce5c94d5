"""Invariant 3, no gaps, no duplicates: along the lineage every position was applied once, as plan and dataset say.

The rows come from the published segments, the ids once more from each rank's `step` events, the contents from the
dataset as it is now. What cannot be compared is unknown, never taken as right.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

from chaos.audit.consumed import ids_differ, ids_missing
from chaos.audit.coverage import Expected, cover
from chaos.audit.events import Finished
from chaos.audit.evidence import Evidence, Manifest, Moment, Publish, Segment
from chaos.audit.facts import RunBegun
from chaos.audit.findings import Case, Finding, count, microbatches
from chaos.audit.ledger_prose import Teller
from chaos.audit.logbook import lineage, unusable
from chaos.audit.order import disorder, strange_samples
from chaos.audit.plan import Plan, plan_fingerprint
from chaos.audit.plan_ahead import WORTH, PlanAhead
from chaos.audit.told import other_groups
from chaos.audit.verified import damages, manifest_of
from chaos.audit.witnesses import events

ID, NAME = 3, "no gaps, no duplicates"


@dataclass(frozen=True)
class Link:
    """One checkpoint of the lineage, and the moment from which its ledger segments must begin.

    manifest: None if it is lost, and with it which segments there were.
    """

    publish: Publish
    manifest: Manifest | None
    start: Moment

    def positions(self, batch: int) -> tuple[int, int]:
        """[first, end) of positions in which its rows lie, whole updates."""
        step, microbatch = self.publish.moment
        return self.start[0] * batch, (step + bool(microbatch)) * batch


def check(evidence: Evidence) -> Finding:
    """Invalid: gaps, repeats, other samples, other contents, other steps. Witness: the first step and sample."""
    case = Case()
    if broken := unusable(evidence):
        case.unsure.append(broken)
        return case.finding()
    begun = evidence.begun
    if begun is None:
        case.unsure.append("the history does not say what the run was")
        return case.finding()
    if begun.global_batch < 1:
        case.unsure.append(f"the history says that a step has {begun.global_batch} samples")
        return case.finding()
    line = tuple(reversed(lineage(evidence.store.log.entries)))
    _judge_end(evidence, begun, line, case)
    case.wrong += disorder(evidence)
    case.wrong += other_groups(evidence, begun.ranks)
    if not line:
        return case.finding("nothing was published")
    case.used = True
    links = _links(evidence, begun.global_batch, line, case)
    _judge_fingerprints(evidence, links, case)
    _judge_rows(evidence, begun, links, case)
    return case.finding()


def _judge_end(evidence: Evidence, begun: RunBegun, line: Sequence[Publish], case: Case) -> None:
    """A run that says it has finished must have published its last step."""
    reached = line[-1].step if line else 0
    finished = [event.what.step for event in events(evidence, Finished)]
    if finished and (max(finished) != begun.steps or reached != begun.steps):
        batch = begun.global_batch
        case.wrong.append(
            f"the run says that it finished at step {max(finished)} of {begun.steps}, but the ledger ends at "
            "step "
            f"{reached}: positions {reached * batch}–{begun.steps * batch - 1} were never applied"
        )


def _links(evidence: Evidence, batch: int, line: Sequence[Publish], case: Case) -> list[Link]:
    """The lineage by the log, cross-checked with the parents that the manifests name."""
    links: list[Link] = []
    before: Publish | None = None
    for publish in line:
        manifest = manifest_of(evidence, publish)
        if manifest is None:
            case.unsure.append(f"the manifest of {publish.name} is lost, see invariant 1")
        else:
            parent = None if before is None else before.digest
            if manifest.parent != parent:
                named = "nothing" if before is None else before.name
                case.wrong.append(
                    f"{publish.name} names {_name_of(line, manifest.parent)} as its parent, by the log it "
                    "descends "
                    f"from {named}"
                )
            if manifest.cursor != manifest.step * batch:
                case.wrong.append(
                    f"{publish.name} has cursor {manifest.cursor} beside optimizer step {manifest.step}, "
                    "which is "
                    f"position {manifest.step * batch}"
                )
        links.append(Link(publish, manifest, (0, 0) if before is None else before.moment))
        before = publish
    return links


def _name_of(line: Sequence[Publish], digest: str | None) -> str:
    if digest is None:
        return "nothing"
    return next(
        (publish.name for publish in line if publish.digest == digest), "a manifest outside of the lineage"
    )


def _judge_fingerprints(evidence: Evidence, links: Sequence[Link], case: Case) -> None:
    """The evidence for samples and contents: the plan's parameters and the dataset."""
    plan, dataset = evidence.plan, evidence.dataset
    if plan is None:
        case.unsure.append("the history does not have the plan's parameters, so sample ids cannot be judged")
    if dataset.problem is not None:
        case.unsure.append(f"contents cannot be judged: {dataset.problem}")
    if plan is not None and dataset.problem is None and plan.rows != dataset.rows:
        case.unsure.append(f"the dataset in {dataset.folder} has {dataset.rows} rows, the plan {plan.rows}")
    present = [(link.publish.name, link.manifest.fingerprints) for link in links if link.manifest is not None]
    for name, prints in present:
        if dataset.fingerprint is not None and prints.dataset != dataset.fingerprint:
            case.unsure.append(
                f"the dataset in {dataset.folder} is not the one that was trained on: its fingerprint is "
                f"{dataset.fingerprint[:19]}…, that of {name} {prints.dataset[:19]}…"
            )
            break
    for name, prints in present:
        if plan is not None and prints.plan != plan_fingerprint(plan):
            case.wrong.append(f"the plan in the history is not the one of {name}")
            break


def _judge_rows(evidence: Evidence, begun: RunBegun, links: Sequence[Link], case: Case) -> None:
    batch = begun.global_batch
    segments: list[Segment] = []
    absent: list[tuple[int, int]] = []
    for link in links:
        broken = {damage.path for damage in damages(evidence, link.publish)}
        if link.manifest is None:
            absent.append(link.positions(batch))
            continue
        for file in link.manifest.files:
            if file.kind != "ledger":
                continue
            seen = evidence.store.files.get(file.path)
            if seen is None or seen.segment is None or file.path in broken:
                case.unsure.append(
                    f"the ledger of {link.publish.name}, rank {file.rank}, is lost, see invariant 1"
                )
                absent.append(link.positions(batch))
            else:
                segments.append(seen.segment)
                _judge_place(link, file.rank, seen.segment, case)
    plan = _plan(evidence, links)
    data = evidence.dataset
    rows = data.rows if evidence.plan is None else 0 if plan is None else plan.rows
    step, microbatch = links[-1].publish.moment
    lookup = None if plan is None else plan.sample_ids
    whole = batch % (begun.ranks * begun.microbatches) == 0  # the trainer takes no other
    split = (begun.ranks, begun.microbatches, microbatch) if whole else (0, 0, 0)
    expected = Expected(step * batch, batch, rows, lookup, data.content, data.known, tuple(absent), *split)
    with PlanAhead(plan) if plan is not None and expected.end >= WORTH else nullcontext() as ahead:
        coverage = cover(segments, expected, ahead=ahead)
    Teller(evidence, segments, expected, plan).tell(coverage, case)
    if coverage.unread and data.problem is None:
        case.unsure.append(f"the dataset lacks {count(coverage.unread, 'sample')} that the ledger names")
    case.wrong += ids_differ(evidence, segments)
    case.unsure += ids_missing(evidence, segments)
    if plan is not None:
        case.wrong += strange_samples(evidence, begun, plan, segments)


def _plan(evidence: Evidence, links: Sequence[Link]) -> Plan | None:
    """The plan that the checkpoints name; None if the history has none, or another one, which says nothing of them."""
    spec = evidence.plan
    prints = {link.manifest.fingerprints.plan for link in links if link.manifest is not None}
    if spec is None or (prints and prints != {plan_fingerprint(spec)}):
        return None
    return Plan(spec.rows, spec.group_rows, spec.window_groups, spec.seed)


def _judge_place(link: Link, rank: int, segment: Segment, case: Case) -> None:
    """The steps that a segment says it covers must be those since the checkpoint's parent."""
    meta, (step, microbatch) = segment.meta, link.publish.moment
    last = step if microbatch else step - 1
    if (meta.start, meta.last_step, meta.microbatch) != (link.start, last, microbatch):
        covered = _updates(meta.start, meta.last_step, meta.microbatch)
        must = _updates(link.start, last, microbatch)
        case.wrong.append(
            f"the ledger of {link.publish.name}, rank {rank}, covers updates {covered}, it must be {must}"
        )


def _updates(start: Moment, last: int, microbatch: int) -> str:
    """`4 to 6`; `4 (from microbatch 3 on) to 6 (of it 2 microbatches)`."""
    begin = f"{start[0]} (from microbatch {start[1]} on)" if start[1] else f"{start[0]}"
    return f"{begin} to {last}" + (f" (of it {microbatches(microbatch)})" if microbatch else "")
