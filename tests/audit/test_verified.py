"""What keeps a published checkpoint from verifying, one thing at a time, and which damage a receipt explains. Pure."""

from __future__ import annotations

from dataclasses import replace

import pytest
from simulated_run import F0, one_kill

from chaos.audit.evidence import Evidence, Manifest, Publish
from chaos.audit.facts import Receipt
from chaos.audit.read_run import read_evidence
from chaos.audit.verified import announced, damages, manifest_faults, manifest_of


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> Evidence:
    """A whole, valid run of two ranks."""
    return read_evidence(one_kill(tmp_path_factory.mktemp("verified") / "run").folder)


@pytest.fixture
def publish(evidence: Evidence) -> Publish:
    """The newest checkpoint."""
    return [entry for entry in evidence.store.log.entries if isinstance(entry, Publish)][-1]


@pytest.fixture
def manifest(evidence: Evidence, publish: Publish) -> Manifest:
    found = manifest_of(evidence, publish)
    assert found is not None
    return found


def test_a_whole_checkpoint_verifies(evidence: Evidence, publish: Publish, manifest: Manifest) -> None:
    assert manifest_faults(evidence, publish, manifest) == []
    assert damages(evidence, publish) == ()


def test_a_manifest_is_that_of_its_publication_only(evidence: Evidence, publish: Publish) -> None:
    assert manifest_of(evidence, replace(publish, digest="sha256:0")) is None
    assert manifest_of(evidence, replace(publish, name="s00000099-a0000")) is None


def test_a_manifest_of_another_attempt(evidence: Evidence, publish: Publish, manifest: Manifest) -> None:
    words = f"is of step {manifest.step} of attempt {manifest.attempt}, published by {publish.attempt + 1}"
    assert manifest_faults(evidence, replace(publish, attempt=publish.attempt + 1), manifest) == [words]
    misnamed = replace(manifest, microbatch=1)
    assert f"is of step {manifest.step} of attempt {manifest.attempt}, published by {publish.attempt}" in (
        manifest_faults(evidence, publish, misnamed)
    )


def test_the_ranks_are_those_of_the_world(evidence: Evidence, publish: Publish, manifest: Manifest) -> None:
    first, second = manifest.ranks
    for ranks in ((first,), (first, first), (second, first)):
        assert "does not list the ranks 0 to 1 once each" in (
            manifest_faults(evidence, publish, replace(manifest, ranks=ranks))
        )
    nobody = replace(manifest, world=0, ranks=(), files=(), parts={})
    assert "does not list the ranks 0 to -1 once each" in manifest_faults(evidence, publish, nobody)


def test_the_first_file_that_is_not_named_is_told(evidence: Evidence, publish: Publish, manifest: Manifest) -> None:
    words = "does not name one shard and one ledger segment of every rank: see "
    lacking = replace(manifest, files=())
    assert manifest_faults(evidence, publish, lacking) == [f"{words}{min(file.path for file in manifest.files)}"]
    twice = replace(manifest, files=(*manifest.files, manifest.files[0]))
    assert manifest_faults(evidence, publish, twice) == [f"{words}one twice"]


def test_a_file_that_cannot_be_read_as_what_it_should_be(
    evidence: Evidence, publish: Publish, manifest: Manifest
) -> None:
    named = manifest.files[0]
    odd = replace(evidence.store.files[named.path], problem="is no safetensors file")
    store = replace(evidence.store, files={**evidence.store.files, named.path: odd})
    (damage,) = damages(replace(evidence, store=store), publish)
    assert (damage.path, damage.what, damage.kind) == (named.path, "is no safetensors file", named.kind)


def test_a_missing_file_is_explained_by_a_receipt_of_its_removal_only(
    evidence: Evidence, publish: Publish, manifest: Manifest
) -> None:
    named = manifest.files[0]
    files = {path: seen for path, seen in evidence.store.files.items() if path != named.path}
    gone = replace(evidence, store=replace(evidence.store, files=files))
    (damage,) = damages(gone, publish)
    (some, *_) = evidence.history.receipts
    assert some.fault == F0["id"]
    for after, explains in ((None, True), ("sha256:0", False)):
        receipt = replace(some, kind="damage", path=f"store/{named.path}", after=after)
        told: tuple[Receipt, ...] = (receipt,)
        found = announced(replace(gone, history=replace(gone.history, receipts=told)), damage)
        assert (found == receipt) is explains
