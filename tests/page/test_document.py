"""The file: it is one, it asks nothing of a network, and nothing that comes from a run is more than text in it."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from page_kit import evil, shown

from chaos.errors import ReportError
from chaos.page import document as module
from chaos.page.document import LIMIT_BYTES, document
from chaos.page.figures.theme import PALETTE, config, patterns, resolved
from chaos.page.pages import RunPage
from chaos.page.sections import run_parts


class Elements(HTMLParser):
    """Every element with its attributes, and the text of scripts."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.found if name == tag]


@pytest.fixture(scope="module")
def good(good_run: Path) -> RunPage:
    return shown(good_run)


@pytest.fixture(scope="module")
def text(good: RunPage) -> str:
    return document([good])


def test_the_page_holds_all_it_needs(text: str) -> None:
    found = Elements(text)
    assert len(text.encode()) < LIMIT_BYTES
    assert not [each for tag in ("link", "iframe", "object", "embed", "base", "form") for each in found.all(tag)]
    assert not [each for each in found.all("script") if "src" in each]
    assert all((each.get("href") or "").startswith("#") for each in found.all("a"))
    assert not re.search(r"url\((?!#h-)", text.split("<body>")[0])
    assert not re.search(r"@import|@font-face", text)


def test_the_policy_lets_only_the_two_own_scripts_run(text: str) -> None:
    (policy,) = [each["content"] for each in Elements(text).all("meta") if each.get("http-equiv")]
    assert policy is not None
    rules = dict(rule.strip().split(" ", 1) for rule in policy.split(";"))
    assert rules["default-src"] == "'none'"
    sources = rules["script-src"].split()
    assert len(sources) == 2
    assert all(re.fullmatch(r"'sha256-[A-Za-z0-9+/]{43}='", source) for source in sources)
    assert "connect-src" not in rules  # so it is 'none' too
    assert len([each for each in Elements(text).all("script") if each["type"] == "module"]) == 2


def test_text_of_a_run_stays_text(good: RunPage, text: str) -> None:
    bad = document([evil(good)])
    tags = {tag for tag, _ in Elements(text).found}
    assert {tag for tag, _ in Elements(bad).found} == tags  # no img, and no script more
    assert len(Elements(bad).all("script")) == len(Elements(text).all("script"))
    assert "onerror" not in {name for _, attributes in Elements(bad).found for name in attributes}
    assert html.escape("<img src=x onerror=alert(1)>") in bad
    assert "{{7*7}}" in html.unescape(bad)  # shown, not computed
    assert "\x1b" not in bad


def test_a_page_that_cannot_be_small_enough_is_refused(good: RunPage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIMIT_BYTES", 500_000)
    with pytest.raises(ReportError, match="give fewer RUNs"):
        document([good])


def test_every_figure_says_how_many_observations_it_is_of(good: RunPage) -> None:
    for part in run_parts(good):
        for figure in part.figures:
            assert re.search(r"n = \d|\d+ updates", figure.caption), figure.caption
            assert figure.spec["description"]


def luminance(colour: str) -> float:
    values = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [v / 12.92 if v <= 0.04045 else ((v + 0.055) / 1.055) ** 2.4 for v in values]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(first: str, second: str) -> float:
    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground", "least"),
    [
        *((name, ground, 4.5) for name in ("ink", "muted", "valid", "invalid", "unknown") for ground in ("paper",
                                                                                                         "card")),
        ("on-kill", "kill", 4.5), ("ink", "kept", 4.5), ("ink", "kept2", 4.5), ("ink", "save-bg", 4.5),
        ("ink", "redone", 4.5), ("muted", "sunk", 4.5), ("kill", "card", 3), ("kill", "kept", 1.5),
        ("kept-edge", "card", 3), ("redone-edge", "redone", 3), ("lost-edge", "lost", 2.5), ("save", "card", 3),
    ],
)  # fmt: skip
def test_contrast_holds(scheme: int, text: str, ground: str, least: float) -> None:
    assert contrast(PALETTE[text][scheme], PALETTE[ground][scheme]) >= least


def test_every_colour_that_is_used_is_one_of_the_palette() -> None:
    assert "var(" not in resolved(patterns() + str(config()))
    with pytest.raises(KeyError):
        resolved("var(--no-such)")
