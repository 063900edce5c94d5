from __future__ import annotations

import pickle

import pytest

from storage import errors

EXAMPLES = [
    errors.StorageError("plain"),
    errors.Damaged("shards/x", "is cut off"),
    errors.NotThere("shards/x"),
    errors.LogBroken("log/00000001.json", "does not exist"),
    errors.HistoryBroken("h.jsonl, line 3", "is not a history line"),
    errors.Unavailable("shards/x", "Input/output error"),
    errors.AlreadyExists("log/00000001.json"),
    errors.StoreFull("shards/x"),
    errors.Fenced(4),
    errors.Abandoned("shards/x", "shard.half"),
    errors.NoCandidate(("a: cut", "b: gone")),
]


def test_every_error_has_an_example() -> None:
    assert {type(e) for e in EXAMPLES} == {
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and kind.__module__ == errors.__name__
    }


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_survives_pickling_with_message_and_attributes(error: errors.StorageError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), vars(copy)) == (type(error), str(error), vars(error))


@pytest.mark.parametrize("error", EXAMPLES, ids=lambda error: type(error).__name__)
def test_is_a_storage_error_named_in_the_tree(error: errors.StorageError) -> None:
    assert isinstance(error, errors.StorageError)
    assert type(error).__name__ in str(errors.__doc__)


def test_the_message_says_where_and_what() -> None:
    assert str(errors.Damaged("shards/x", "is cut off")) == "shards/x: is cut off"
    assert "attempt 4" in str(errors.Fenced(4))
    assert "a: cut; b: gone" in str(errors.NoCandidate(("a: cut", "b: gone")))


def test_unavailable_is_not_damage() -> None:
    assert not issubclass(errors.Unavailable, errors.Damaged)
    assert not issubclass(errors.StoreFull, errors.Damaged)
