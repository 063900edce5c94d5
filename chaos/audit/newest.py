"""Invariant 2, newest verified: every restart chose the newest candidate that verifies, and really restored it.

Candidates and their damage are derived anew. A candidate that was retired after the choice counts as verified
unless the choice rejected it. Damage that came after the choice is no fault of the choice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.audit.events import Chosen, Event, Loaded, Restored
from chaos.audit.evidence import Candidate, Choose, Evidence, Publish, Ref
from chaos.audit.facts import Receipt
from chaos.audit.findings import Case, Finding, listed
from chaos.audit.logbook import attempts, candidates, publications, retired, unusable
from chaos.audit.verified import Damage, announced, damages, manifest_of
from chaos.audit.witnesses import boot, events, restored_by_attempt, steps_by_attempt

ID, NAME = 2, "newest verified"


def check(evidence: Evidence) -> Finding:
    """Invalid: an older or unverified checkpoint, another branch or run, a fresh start, or another state."""
    case = Case()
    if broken := unusable(evidence):
        case.unsure.append(broken)
        return case.finding()
    entries = evidence.store.log.entries
    trained = steps_by_attempt(evidence).keys() | restored_by_attempt(evidence).keys()
    for number, attempt in attempts(entries).items():
        if number > 0 or attempt.chooses:
            case.used = case.used or number > 0
            _judge_chooses(evidence, number, attempt.chooses, case)
        acted = number in trained or bool(attempt.published)
        if number > 0 and acted and not attempt.chooses:
            case.wrong.append(f"attempt {number} trained without recording what it started from")
        _judge_restored(evidence, number, attempt.choose, case)
    return case.finding("nothing was restarted")


def _judge_chooses(evidence: Evidence, attempt: int, chooses: Sequence[Choose], case: Case) -> None:
    if len(chooses) > 1:
        case.wrong.append(f"attempt {attempt} chose {len(chooses)} times")
    for choose in chooses:
        found = candidates(evidence.store.log.entries, attempt)
        _judge_choice(evidence, choose, found, case)
        for event in events(evidence, Chosen):
            said = event.what
            chosen = (choose.parent.name, choose.parent.digest) if choose.parent else (None, None)
            if said.seq == choose.seq and (said.name, said.digest) != chosen:
                case.wrong.append(
                    f"{event.file} recorded the choice of {said.name}, entry {choose.seq} says {chosen[0]}"
                )


def _judge_choice(evidence: Evidence, choose: Choose, found: Sequence[Publish], case: Case) -> None:
    noted = {candidate.ref: candidate for candidate in choose.candidates}
    where = f"attempt {choose.attempt} (entry {choose.seq})"
    strangers = [note.name for note in choose.candidates if note.ref not in {publish.ref for publish in found}]
    case.wrong += [f"{where} lists {name}, which was no candidate" for name in strangers]
    chosen = next((publish for publish in found if publish.ref == choose.parent), None)
    if choose.parent is None:
        if found:
            case.wrong.append(_fresh_start(choose, found))
        return
    if chosen is None:
        case.wrong.append(_outsider(evidence, choose, choose.parent, found))
        return
    for publish in found[: found.index(chosen)]:
        _judge_passed_over(evidence, choose, chosen, publish, noted.get(publish.ref), case)
    _judge_chosen(evidence, choose, chosen, noted.get(chosen.ref), case)


def _fresh_start(choose: Choose, found: Sequence[Publish]) -> str:
    rejected = {note.ref for note in choose.candidates if note.status == "rejected"}
    all_rejected = rejected.issuperset(publish.ref for publish in found)
    why = ", every candidate being rejected: stopping would have been right" if all_rejected else ""
    names = listed(publish.name for publish in found[:3])
    return f"attempt {choose.attempt} made a fresh start over {names}, which were published{why}"


def _outsider(evidence: Evidence, choose: Choose, parent: Ref, found: Sequence[Publish]) -> str:
    """Why what was chosen is no candidate."""
    entries = evidence.store.log.entries
    who = f"attempt {choose.attempt} chose {parent.name}, which is no candidate"
    seen = evidence.store.manifests.get(parent.name)
    gone = retired(entries[: choose.seq])
    if seen is not None and seen.manifest is not None and seen.manifest.run != evidence.store.log.run:
        return f"{who}: it belongs to another run, {seen.manifest.run}"
    if parent.name in gone:
        return f"{who}: entry {gone[parent.name].seq} had retired it"
    published = [publish for publish in publications(entries) if publish.ref == parent]
    if not published:
        return f"{who}: it was taken unverified, the log never published it with that digest"
    newest = f"the newest candidate is {found[0].name}" if found else "there is no candidate"
    return (
        f"{who}: it lies on a branch of attempt {published[0].attempt} that an earlier choice had left "
        "behind "
        f"({newest})"
    )


def _judge_passed_over(
    evidence: Evidence, choose: Choose, chosen: Publish, publish: Publish, note: Candidate | None, case: Case
) -> None:
    """A candidate newer than the chosen one needs a recorded rejection that can be derived again."""
    where = f"attempt {choose.attempt} (entry {choose.seq})"
    damage = _damage_then(evidence, choose, publish)
    state = f"it does not verify: store/{damage[0]}" if damage else "it verifies"
    if note is None or note.status != "rejected" or not note.reason:
        how = "does not list it" if note is None else f"lists it as {note.status} without a reason"
        case.wrong.append(f"{where} took {chosen.name}, older than {publish.name}, and {how}; {state}")
    elif damage and all(each.unreadable for each in damage):
        case.unsure.append(f"{where} rejected {publish.name} ({note.reason}); now store/{damage[0]}")
    elif not damage and not _was_damaged(evidence, publish):
        if publish.name in retired(evidence.store.log.entries):
            if not _rank_refused(evidence, choose, publish):
                case.unsure.append(f"{where} rejected {publish.name} ({note.reason}); it was retired since")
        else:
            case.wrong.append(
                f"{where} rejected {publish.name} ({note.reason}) and took {chosen.name}; the newer one "
                "verifies and no "
                "receipt announces damage"
            )


def _judge_chosen(
    evidence: Evidence, choose: Choose, chosen: Publish, note: Candidate | None, case: Case
) -> None:
    where = f"attempt {choose.attempt} (entry {choose.seq})"
    if note is None or note.status != "chosen":
        how = "does not list it" if note is None else f"lists it as {note.status}"
        case.wrong.append(f"{where} took {chosen.name} and {how}")
    for event in _refusals(evidence, choose, chosen):
        told = f" ({event.what.reason})" if event.what.reason else ""
        case.wrong.append(f"{where} took {chosen.name}, though rank {event.what.rank} did not accept it{told}")
    for damage in _damage_then(evidence, choose, chosen):
        receipt = announced(evidence, damage)
        if receipt is not None:
            if _struck_before(evidence, receipt, choose):
                case.wrong.append(f"{where} took {chosen.name}, which did not verify: store/{damage}")
        elif damage.unreadable or damage.kind == "ledger" or _restored_whole(evidence, choose, chosen):
            case.unsure.append(
                f"{chosen.name}, which {where} took, does not verify now (store/{damage}); nothing says "
                "since when"
            )
        else:
            case.wrong.append(f"{where} took {chosen.name}, which does not verify: store/{damage}")


def _damage_then(evidence: Evidence, choose: Choose, publish: Publish) -> tuple[Damage, ...]:
    """Damage that may have been there at the choice: shards removed by a later retirement are none."""
    gone = publish.name in retired(evidence.store.log.entries)
    found = damages(evidence, publish)
    return tuple(d for d in found if not (gone and d.missing and d.kind == "shard"))


def _was_damaged(evidence: Evidence, publish: Publish) -> bool:
    """Whether a receipt announces damage of one of its files, repaired since or not."""
    prefixes = (f"shards/{publish.name}-r", f"ledger/{publish.name}-r", f"manifests/{publish.name}.json")
    return any(
        receipt.path.removeprefix("store/").startswith(prefixes)
        for receipt in evidence.history.receipts
        if receipt.kind == "damage" and receipt.path is not None
    )


def _rank_refused(evidence: Evidence, choose: Choose, publish: Publish) -> bool:
    return any(True for _ in _refusals(evidence, choose, publish))


def _refusals(evidence: Evidence, choose: Choose, publish: Publish) -> Iterator[Event[Loaded]]:
    """One rank's no rejects a candidate."""
    for event in events(evidence, Loaded):
        if event.attempt == choose.attempt and event.what.name == publish.name and not event.what.ok:
            yield event


def _struck_before(evidence: Evidence, receipt: Receipt, choose: Choose) -> bool:
    """Whether the damage was done before the choice; by the attempt where no clock of one boot tells."""
    for event in events(evidence, Chosen):
        if event.what.seq == choose.seq and boot(evidence, event.file) == receipt.boot:
            return receipt.t_ns < event.t_ns
    return receipt.attempt < choose.attempt


def _restored_whole(evidence: Evidence, choose: Choose, chosen: Publish) -> bool:
    """Whether every rank's live state after the restore was that of the manifest: damage then came later."""
    manifest = manifest_of(evidence, chosen)
    seen = restored_by_attempt(evidence).get(choose.attempt, ())
    if manifest is None or {event.what.rank for event in seen} != {record.rank for record in manifest.ranks}:
        return False
    expected = {record.rank: {**manifest.parts, **record.parts} for record in manifest.ranks}
    return all(event.what.parts == expected[event.what.rank] for event in seen)


def _judge_restored(evidence: Evidence, attempt: int, choose: Choose | None, case: Case) -> None:
    """What the ranks say that they restored must be what was chosen."""
    parent = None if choose is None else choose.parent
    manifest = None
    if parent is not None:
        seen = evidence.store.manifests.get(parent.name)
        manifest = seen.manifest if seen is not None and seen.digest == parent.digest else None
    name, digest, step = (parent.name, parent.digest, parent.step) if parent else (None, None, 0)
    microbatch = parent.moment[1] if parent else 0
    for event in restored_by_attempt(evidence).get(attempt, ()):
        told: Restored = event.what
        if (told.name, told.digest, told.step) != (name, digest, step):
            case.wrong.append(
                f"rank {told.rank} of attempt {attempt} restored {_state(told.name, told.step)}, "
                f"the log chose {_state(name, step)}"
            )
        elif told.microbatch != microbatch:
            case.wrong.append(
                f"rank {told.rank} of attempt {attempt} restored {told.microbatch} microbatches of the update "
                f"after step {step}, {name or 'a start from nothing'} holds {microbatch}"
            )
        cursor = 0 if parent is None else None if manifest is None else manifest.cursor
        if cursor is not None and told.cursor != cursor:
            case.wrong.append(
                f"rank {told.rank} of attempt {attempt} restored cursor {told.cursor} beside optimizer step "
                f"{told.step}; the checkpoint has cursor {cursor}"
            )


def _state(name: str | None, step: int) -> str:
    return f"{name} (step {step})" if name is not None else f"nothing (step {step})"
