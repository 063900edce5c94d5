"""The catalogue of kill points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from chaos.points import CATALOGUE, Role, is_user_point, nearest

ROOT = Path(__file__).resolve().parents[2]
CALL = re.compile(r"""(?:reached|points|point|at)\(\s*["']([a-z_]+(?:\.[a-z_]+)+)["']""")


def test_every_point_is_described_and_has_a_role() -> None:
    for name, point in CATALOGUE.items():
        assert point.name == name
        assert point.roles
        assert point.description
        assert not is_user_point(name)


def test_roles_with_a_rank() -> None:
    assert [role for role in Role if role.has_rank] == [Role.RANK, Role.DATA]


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("shard.hlaf", "shard.half"),
        ("microbatch.backwards", "microbatch.backward"),
        ("publish", "publish.after"),
    ],
)
def test_the_nearest_point(wrong: str, right: str) -> None:
    assert nearest(wrong) == right


def test_nothing_is_near_to_nonsense() -> None:
    assert nearest("xyzzy") is None


def test_the_code_passes_no_point_that_the_catalogue_lacks() -> None:
    sources = [path for package in ("storage", "trainers") for path in (ROOT / package).rglob("*.py")]
    passed = {name for path in sources for name in CALL.findall(path.read_text())}
    assert passed - CATALOGUE.keys() == set()
