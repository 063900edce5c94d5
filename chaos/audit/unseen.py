"""What a run could not have seen: defects that would have left no trace in it. Part of every verdict."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.audit.events import Event, NonFinite, Published, SaveStaged
from chaos.audit.evidence import Choose, Evidence, Manifest
from chaos.audit.facts import Receipt
from chaos.audit.formats import checkpoint_name, part_digest
from chaos.audit.logbook import attempts, lineage, retired
from chaos.audit.recovery_itself import interruptions
from chaos.audit.redo import restored_step
from chaos.audit.unseen_restarts import restarts, saves, tails
from chaos.audit.verified import manifest_of
from chaos.audit.witnesses import boot, events, steps

_NO_TEXT = part_digest("scheduler", {}, "null")
_NO_TENSORS = part_digest("buffers", {}, None)
_GENERATORS = {"rng.python": "Python's", "rng.numpy": "NumPy's", "rng.torch": "torch's", "rng.cuda": "CUDA's"}


def unseen(evidence: Evidence) -> tuple[str, ...]:
    """One sentence each."""
    line = lineage(evidence.store.log.entries)
    manifests = [m for m in (manifest_of(evidence, publish) for publish in line) if m is not None]
    return (
        *_twin(evidence),
        *_state(evidence, manifests),
        *_epochs(evidence),
        *_kills(evidence),
        *tails(evidence),
        *restarts(evidence),
        *saves(evidence),
        *_store(evidence),
    )


def _twin(evidence: Evidence) -> Iterator[str]:
    if not evidence.twins:
        yield (
            "the trajectory was not compared with an uninterrupted twin: numbers that went wrong after a restore "
            "are invisible here"
        )
    elif evidence.begun is not None and evidence.begun.tolerance:
        yield (
            f"a tolerance of {evidence.begun.tolerance:g} was stated: digests of the state were not compared with the "
            "twin's, and what moves loss, rate and norm by less is invisible here"
        )


def _state(evidence: Evidence, manifests: Sequence[Manifest]) -> Iterator[str]:
    rates = steps(evidence).rates()
    if not rates:
        yield "no update was done: nothing of the training was seen"
    elif len(rates) == 1:
        yield "the learning rate was constant: a lost scheduler is invisible here"
    if not manifests:
        return
    ranks = manifests[0].ranks
    if all(record.parts.get("scheduler") == _NO_TEXT for record in ranks):
        yield "there was no scheduler: that its state returns was not seen"
    if all(record.parts.get("scaler") == _NO_TEXT for record in ranks):
        yield "there was no gradient scaler: that its state returns was not seen"
    else:
        yield from _scaler(evidence)
    if all(record.parts.get("buffers") == _NO_TENSORS for record in ranks):
        yield "the model had no buffers: that they return was not seen"
    if not any(name.startswith("optimizer/") for name in manifests[0].tensors):
        yield "the optimizer had no state: a lost one is invisible here"
    idle = [word for part, word in _GENERATORS.items() if _idle(manifests, part)]
    if idle:
        yield (
            f"{' and '.join(idle)} generator never advanced between checkpoints: a lost state of it is "
            "invisible here"
        )


def _scaler(evidence: Evidence) -> Iterator[str]:
    """A scaler that came back as new shows where its scale has fallen before; an overflow by itself proves nothing."""
    overflows = {event.what.step for event in events(evidence, NonFinite) if event.what.what == "scaled_gradient"}
    lives = attempts(evidence.store.log.entries)
    starts = [restored_step(life) for number, life in lives.items() if number > 0]
    if not overflows:
        yield "no scaled gradient overflowed: a lost gradient scaler may be invisible here"
    elif starts and min(overflows) > max(starts):
        yield "no scaled gradient overflowed before a restart: a scaler that came back as new may be invisible here"


def _idle(manifests: Sequence[Manifest], part: str) -> bool:
    """Whether the part was the same in every checkpoint of every rank."""
    states = [{record.rank: record.parts.get(part) for record in manifest.ranks} for manifest in manifests]
    there = any(digest is not None for digest in states[0].values())
    return there and all(state == states[0] for state in states)


def _epochs(evidence: Evidence) -> Iterator[str]:
    begun, rows = evidence.begun, evidence.plan.rows if evidence.plan is not None else 0
    if begun is None or not rows:
        return
    if begun.microbatches == 1:
        yield "a step was one microbatch: faults of gradient accumulation are invisible here"
    end = begun.steps * begun.global_batch
    starts = [
        restored_step(life) for number, life in attempts(evidence.store.log.entries).items() if number > 0
    ]
    if end <= rows:
        yield "the run stayed within one epoch: a wrong order or a skip in later epochs is invisible here"
    elif starts and not any((start * begun.global_batch) // rows < (end - 1) // rows for start in starts):
        yield "no epoch began after a restart: a wrong order after the first boundary is invisible here"


def _kills(evidence: Evidence) -> Iterator[str]:
    begun, receipts = evidence.begun, evidence.history.receipts
    kills = [receipt for receipt in receipts if receipt.lethal]
    restarts = [number for number in attempts(evidence.store.log.entries) if number > 0]
    if restarts and not receipts:
        yield "no planned fault struck: the recoveries here answer failures that nobody planned"
    elif not restarts:
        yield f"nothing was {'restarted' if kills else 'killed'}: no recovery was seen"
    if kills and not any(_save_in_flight(evidence, receipt) for receipt in kills):
        yield "no save was in flight at any kill: a checkpoint that is torn by a kill is invisible here"
    if restarts and not interruptions(evidence):
        yield "nothing was killed during a recovery"
    if receipts and not any(receipt.gate is not None for receipt in receipts):
        yield "no gate was used: which save was in flight at a kill was left to chance"
    if any(receipt.role == "data" for receipt in receipts):
        yield "no launcher watches data tasks: that a struck one ended is known from its receipt only"
    if begun is not None and begun.ranks <= 2:
        few = "one rank" if begun.ranks == 1 else "two ranks"
        yield f"there were only {few}: a rank that is no neighbour of the dead one was not seen"


def _save_in_flight(evidence: Evidence, receipt: Receipt) -> bool:
    """Whether at the strike some rank had staged a save that was not published yet."""
    published = {
        event.what.name: event.t_ns
        for event in events(evidence, Published)
        if event.attempt == receipt.attempt and boot(evidence, event.file) == receipt.boot
    }
    return any(
        event.attempt == receipt.attempt
        and boot(evidence, event.file) == receipt.boot
        and event.t_ns <= receipt.t_ns < published.get(_name(event), receipt.t_ns + 1)
        for event in events(evidence, SaveStaged)
    )


def _name(event: Event[SaveStaged]) -> str:
    return checkpoint_name(event.what.step, event.attempt or 0, event.what.microbatch)


def _store(evidence: Evidence) -> Iterator[str]:
    entries = evidence.store.log.entries
    chooses = [entry for entry in entries if isinstance(entry, Choose) and entry.attempt > 0]
    if chooses and not any(note.status == "rejected" for entry in chooses for note in entry.candidates):
        yield "no candidate was ever rejected: that a damaged one is passed over was not seen"
    if not retired(entries):
        yield "nothing was ever retired: that retention keeps a way back was not seen"
