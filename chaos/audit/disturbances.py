"""What was seen of faults that end no process (invariant 10): damage, stray files, delays, outages of the store; and
what was seen of such without a receipt.
"""

from __future__ import annotations

from collections.abc import Iterator

from chaos.audit.disturbance_events import Noticed, Slowed, StoreFailed
from chaos.audit.events import Event, StepDone
from chaos.audit.evidence import Evidence, ManifestSeen
from chaos.audit.facts import Receipt
from chaos.audit.logbook import publications
from chaos.audit.witnesses import boot, events

_WITHIN_STEP = ("step.begin", "microbatch.", "reduce.", "optimizer.", "scheduler.")  # what a step's `train_s` covers


def disturbed(evidence: Evidence, receipt: Receipt) -> str | None:
    """How it was seen; None if nothing shows it."""
    match receipt.kind:
        case "damage":
            return _damaged(evidence, receipt)
        case "stray":
            return _strayed(evidence, receipt)
        case "slow":
            return _late(evidence, receipt)
        case _:  # "outage": every other kind is lethal
            return _failed(evidence, receipt)


def unasked(evidence: Evidence) -> Iterator[str]:
    """Disturbances that were recorded and that no receipt accounts for, each as a sentence."""
    receipts = evidence.history.receipts
    for event in events(evidence, Noticed):
        if event.what.own and not any(r.kind == "sigterm" and _writes(evidence, event, r) for r in receipts):
            yield (
                f"rank {event.what.rank} of attempt {event.attempt} was given notice before the end of step "
                f"{event.what.step}, and no receipt accounts for it"
            )
    for path, _ in _of_other_runs(evidence):
        known = any(r.kind == "stray" and r.path == f"store/{path}" for r in receipts)
        if not known and not _published(evidence, path):
            yield f"store/{path} is of another run, and no receipt accounts for it"
    failed = [e for e in events(evidence, StoreFailed)
              if not any(r.kind == "outage" and _writes(evidence, e, r) for r in receipts)]  # fmt: skip
    if failed:
        where = failed[0].what.where
        yield f"history/{failed[0].file} says that {where} was unavailable, and no receipt accounts for it"
    for slowed in events(evidence, Slowed):
        if not any(r.kind == "slow" and r.fault == slowed.what.fault for r in receipts):
            yield f"history/{slowed.file} has delays of {slowed.what.fault}, and there is no receipt of them"


def _writes(evidence: Evidence, event: Event[object], receipt: Receipt) -> bool:
    """Whether the event is of the process that the receipt names."""
    file = evidence.history.files.get(event.file)
    opened = None if file is None else file.opened
    target = receipt.target
    return opened is not None and (opened.pid, opened.start_ticks) == (target.pid, target.start_ticks)


def _damaged(evidence: Evidence, receipt: Receipt) -> str | None:
    path = (receipt.path or "").removeprefix("store/")
    seen = evidence.store.files.get(path)
    if seen is not None and seen.digest == receipt.after:
        return "damaged"
    return "removed since" if receipt.path is not None and path not in evidence.store.present else None


def _strayed(evidence: Evidence, receipt: Receipt) -> str | None:
    """The manifest is there as the receipt says, of another run, and nothing published it."""
    for path, seen in _of_other_runs(evidence):
        if f"store/{path}" == receipt.path and seen.digest == receipt.after:
            return "not chosen" if not _published(evidence, path) else None
    return None


def _of_other_runs(evidence: Evidence) -> Iterator[tuple[str, ManifestSeen]]:
    for seen in evidence.store.manifests.values():
        if seen.manifest is not None and evidence.begun is not None and seen.manifest.run != evidence.begun.run:
            yield seen.path, seen


def _published(evidence: Evidence, path: str) -> bool:
    return any(path == f"manifests/{publish.name}.json" for publish in publications(evidence.store.log.entries))


def _failed(evidence: Evidence, receipt: Receipt) -> str | None:
    """The process recorded every error that was to come, or, in a time, any."""
    if receipt.outage is None:
        return None
    errors = sum(
        event.t_ns > receipt.t_ns and boot(evidence, event.file) == receipt.boot
        for event in events(evidence, StoreFailed)
        if _writes(evidence, event, receipt)
    )
    least = receipt.outage.operations or 1
    return f"{errors} error{'' if errors == 1 else 's'}" if errors >= least else None


def _late(evidence: Evidence, receipt: Receipt) -> str | None:
    """All passages were passed, and no sooner than so many delays after the receipt; where the point lies within a
    step, the steps themselves took longer too.
    """
    slow = receipt.slow
    if slow is None:
        return None
    least_s = slow.delay_s * slow.passages
    for event in events(evidence, Slowed):
        done = event.what
        if (done.fault, done.passages) != (receipt.fault, slow.passages) or not _writes(evidence, event, receipt):
            continue
        took_s = (event.t_ns - receipt.t_ns) / 1e9
        if boot(evidence, event.file) != receipt.boot or took_s < least_s:
            return None
        if (receipt.point or "").startswith(_WITHIN_STEP):
            took_s = _steps_s(evidence, event, receipt)
        return f"{took_s:.2f} s in {slow.passages} passages" if took_s >= least_s else None
    return None


def _steps_s(evidence: Evidence, slowed: Event[Slowed], receipt: Receipt) -> float:
    """What the steps of that process took, from the one in which the first passage lies to that of the last."""
    total_s = 0.0
    for event in events(evidence, StepDone):
        if event.file == slowed.file and event.attempt == slowed.attempt and event.t_ns > receipt.t_ns:
            total_s += event.what.train_s
            if event.n > slowed.n:
                break
    return total_s
