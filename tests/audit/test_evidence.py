"""What was found, as values: what is meant where nothing is said, names as moments, and chains in few bytes."""

from __future__ import annotations

import pytest
from evidence_by_hand import begun, evidence, manifest_seen, published, recorded
from hypothesis import given, settings
from hypothesis import strategies as st

from chaos.audit.evidence import (
    Candidate,
    Chains,
    Dataset,
    FileSeen,
    History,
    HistoryFile,
    Log,
    ManifestSeen,
    Problem,
    Ref,
)
from chaos.audit.facts import Fault

FAULT = Fault("f0", "sigkill", 0, "rank", 1, "step.end", 5, None, None)


def test_what_is_not_said_to_be_unreadable_could_be_read() -> None:
    assert not Problem("p", "is missing").unreadable
    assert not ManifestSeen("p").unreadable
    assert not FileSeen("p", 0, "d").unreadable
    assert str(Problem("store/log/1", "is missing")) == "store/log/1 is missing"


def test_what_else_may_be_left_out() -> None:
    seen = manifest_seen(published(1, 0, 4), {})
    assert seen.manifest is not None
    assert seen.manifest.microbatch == 0
    assert (Log(()).problems, Log(()).run, History({}, ()).problems) == ((), None, ())
    assert (History({}, ()).by_kind, History({}, ()).by_kind is History({}, ()).by_kind) == ({}, False)
    file = HistoryFile("f", None, (), [], False, False)
    assert (file.advances, file.data, len(file.steps), file.problem) == (True, (), 0, None)
    assert recorded("worker").advances


def test_of_a_dataset_that_was_not_read_no_row_is_known() -> None:
    nothing = Dataset("d")
    assert (nothing.rows, len(nothing.content), len(nothing.known), nothing.fingerprint) == (0, 0, 0, None)
    assert (nothing.content.dtype.name, nothing.known.dtype.name) == ("uint64", "bool")


def test_the_moment_of_a_checkpoint_is_in_its_name_and_step() -> None:
    for microbatch in (0, 3):
        publish = published(1, 2, 7, microbatch)
        assert publish.moment == publish.ref.moment == (7, microbatch)
        assert publish.ref == Ref(publish.name, f"sha256:{publish.name}", 7)
    assert Candidate("n", "d", 7, "chosen", "").ref == Ref("n", "d", 7)


def test_planned_faults_are_those_of_the_run_event() -> None:
    assert evidence().faults == ()
    assert evidence(begun=begun(faults=(FAULT,))).faults == (FAULT,)


_CHAIN = st.integers(0, (1 << 256) - 1).map("{:064x}".format)


@settings(max_examples=50, deadline=None)
@given(st.lists(_CHAIN, max_size=5), st.slices(6))
def test_chains_are_a_sequence_of_texts(texts: list[str], cut: slice) -> None:
    chains = Chains()
    for text in texts:
        chains.append(text)
    assert (len(chains), list(chains), list(chains[cut])) == (len(texts), texts, texts[cut])
    for index in range(-len(texts), len(texts)):
        assert chains[index] == texts[index]
    for index in (len(texts), -len(texts) - 1):
        with pytest.raises(IndexError):
            chains[index]
