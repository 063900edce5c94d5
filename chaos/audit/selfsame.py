"""What the run says of itself in several places, as a part of invariant 10: evidence of another run proves nothing.

The `run` event, the experiment file, the fences, the manifests, and what each supervisor found of dataset and plan:
where two of them contradict each other, one of them is not this run's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from chaos.audit.events import ExitConfirmed, Exited, ProcessNamed, Released, Spawned
from chaos.audit.evidence import Evidence, Fingerprints, HistoryFile, Publish
from chaos.audit.facts import DataNamed, RunBegun
from chaos.audit.findings import listed
from chaos.audit.logbook import attempts, publications
from chaos.audit.plan import plan_fingerprint
from chaos.audit.verified import manifest_of
from chaos.audit.witnesses import events

_WORD = (1 << 64) - 1
_COUNTS = ("ranks", "microbatches", "global_batch", "steps", "save_every")


def contradictions(evidence: Evidence) -> Iterator[str]:
    """Sentences that name both places."""
    begun = evidence.begun
    if begun is not None:
        yield from _facts(evidence, begun)
    yield from _fingerprints(evidence)
    yield from _datasets(evidence)


def lost_facts(evidence: Evidence) -> Iterator[str]:
    """What is missing to know that all of it is this run's."""
    begun = evidence.begun
    if begun is not None and begun.experiment_digest is None:
        yield "the `run` event does not say of which experiment file the run is"
    elif begun is not None and evidence.experiment is None:
        yield "experiment.yaml is missing or cannot be read"
    spawned = {event.what.pid for event in events(evidence, Spawned)}
    for event in events(evidence, ProcessNamed):
        if event.what.role != "supervisor" and event.what.pid not in spawned:
            yield f"the history of the launcher of process {event.what.pid} ({event.what.role}) is missing"
    ended = {event.what.pid for kind in (Exited, ExitConfirmed) for event in events(evidence, kind)}
    ended |= {event.what.pid for event in events(evidence, Released)}
    for file in evidence.history.files.values():
        if file.closed and (open_ := _spawned(file) - ended):
            yield f"history/{file.name} is closed, and does not say how process {min(open_)} ended"
        if not file.advances:
            yield f"history/{file.name} has a clock that does not advance"


def _spawned(file: HistoryFile) -> set[int]:
    return {event.what.pid for event in file.events if isinstance(event.what, Spawned)}


def _facts(evidence: Evidence, begun: RunBegun) -> Iterator[str]:
    for name in _COUNTS:
        if getattr(begun, name) < 1:
            yield f"the run has {name} {getattr(begun, name)}, which no run can have"
    if None not in (evidence.experiment, begun.experiment_digest) and evidence.experiment != begun.experiment_digest:
        yield "experiment.yaml is not the one that the run began with"
    if evidence.plan is not None and evidence.plan.seed != begun.seed & _WORD:
        yield f"the run has seed {begun.seed}, its plan {evidence.plan.seed}"
    for number, life in sorted(attempts(evidence.store.log.entries).items()):
        if life.published and life.fence.config != begun.training_digest:
            yield f"attempt {number} (entry {life.fence.seq}) was begun with another configuration than the run"


def _prints(evidence: Evidence) -> Iterator[tuple[Publish, Fingerprints]]:
    for publish in publications(evidence.store.log.entries):
        manifest = manifest_of(evidence, publish)
        if manifest is not None:
            yield publish, manifest.fingerprints


def _fingerprints(evidence: Evidence) -> Iterator[str]:
    """A checkpoint of another dataset, plan, configuration or code is never restored, so all are alike."""
    first: tuple[Publish, Fingerprints] | None = None
    for publish, prints in _prints(evidence):
        first = first or (publish, prints)
        other = [name for name, value in asdict(prints).items() if value != getattr(first[1], name)]
        if other:
            yield f"{publish.name} is of another {listed(other)} than {first[0].name}"
    if first is not None and evidence.begun is not None and first[1].config != evidence.begun.training_digest:
        yield f"{first[0].name} is of another configuration than the run"


def _datasets(evidence: Evidence) -> Iterator[str]:
    """What a supervisor found of the data is that of the checkpoints which its attempts published."""
    leaders: dict[tuple[int, int], Publish] = {}
    for life in attempts(evidence.store.log.entries).values():
        for publish in life.published[:1]:
            leaders.setdefault((life.fence.owner.pid, life.fence.owner.start_ticks), publish)
    known = {publish.seq: prints for publish, prints in _prints(evidence)}
    for file in evidence.history.files.values():
        opened = file.opened
        led = leaders.get((opened.pid, opened.start_ticks)) if opened is not None else None
        if led is None or led.seq not in known:
            continue
        for named in file.data:
            yield from (f"{file.name} names {what} than {led.name}" for what in _other(named, known[led.seq]))


def _other(named: DataNamed, prints: Fingerprints) -> Iterator[str]:
    if named.dataset.fingerprint != prints.dataset:
        yield "another dataset"
    if plan_fingerprint(named.plan) != prints.plan:
        yield "another plan"
    if named.plan.rows != named.dataset.rows:
        yield f"a plan of {named.plan.rows} rows for a dataset of {named.dataset.rows}, which is another"
