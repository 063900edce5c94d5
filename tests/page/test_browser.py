"""The page in a real Chromium: it is drawn without a word on the console, moves, answers, and shows a fault at once."""

from __future__ import annotations

import base64
import functools
from pathlib import Path
from typing import Any

import pytest
from chromium import Browser
from large_run import large
from page_kit import Page, evil, shown
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.keys import Keys

from chaos.page.document import document

TIMELINE = "r0-timeline-timeline"
STEPS, KILLS = 3_000, 30  # tests/bench/bench_page.py has more


@pytest.fixture(scope="module")
def written(page: Page) -> Page:
    """As `page`, but each run's page is written once."""
    return functools.cache(page)


@pytest.fixture(scope="module")
def good_page(page: Page, good_run: Path) -> Path:
    return page(good_run)


def window(browser: Browser) -> tuple[float, float]:
    """Seconds that the timeline shows, once it has been redrawn."""
    browser.run("return new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")
    data: dict[str, str] = browser.run(f"return {{...document.getElementById('{TIMELINE}').dataset}}")
    return float(data["lo"]), float(data["hi"])


def centre(browser: Browser, selector: str) -> tuple[int, int]:
    """Of the first such element that the pointer can meet there: some are cut off or lie below others."""
    browser.run("return new Promise(go => requestAnimationFrame(() => requestAnimationFrame(go)))")
    x, y = browser.run(
        "const all = [...document.querySelectorAll(arguments[0])];"
        "all[0].scrollIntoView({block: 'center', behavior: 'instant'});"
        "const at = e => { const b = e.getBoundingClientRect(); return [b.left + b.width / 2, b.top + b.height / 2] };"
        "return at(all.find(e => document.elementFromPoint(...at(e).map(Math.round)) === e) ?? all[0])", selector,
    )  # fmt: skip
    return round(x), round(y)


def hovered(browser: Browser, selector: str) -> str:
    """The text of the tip over it."""
    x, y = centre(browser, selector)
    actions = ActionChains(browser.driver)
    actions.w3c_actions.pointer_action.move_to_location(x + 40, y + 300)
    actions.w3c_actions.pointer_action.move_to_location(x, y)
    actions.w3c_actions.perform()
    return str(browser.until("const t = document.getElementById('tip'); return t.hidden ? '' : t.innerText"))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (390, False)])
def test_it_is_drawn_without_a_word_on_the_console(browser: Browser, good_page: Path, width: int, dark: bool) -> None:
    browser.open(good_page, width, dark=dark)
    assert browser.said() == []
    drawn = browser.run(
        "return [...document.querySelectorAll('.chart')].map(e => e.querySelectorAll('svg path').length)"
    )
    assert len(drawn) >= 4
    assert all(count > 4 for count in drawn)
    assert browser.run("return document.documentElement.scrollWidth") <= width  # nothing sticks out
    paper = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert paper == ("rgb(19, 22, 27)" if dark else "rgb(250, 248, 244)")


def test_the_timeline_zooms_and_moves_by_button_key_wheel_and_hand(browser: Browser, good_page: Path) -> None:
    browser.open(good_page)
    lo, hi = window(browser)
    browser.run(f"document.querySelector('#{TIMELINE}-box [data-do=in]').click()")
    near = window(browser)
    assert near[1] - near[0] == pytest.approx((hi - lo) / 2, rel=0.05)
    place = browser.driver.find_element("id", TIMELINE)
    place.send_keys("+")
    assert window(browser)[1] - window(browser)[0] == pytest.approx((near[1] - near[0]) / 2, rel=0.05)
    before = window(browser)
    place.send_keys(Keys.ARROW_LEFT)
    assert window(browser)[0] < before[0]
    before = window(browser)
    x, y = centre(browser, f"#{TIMELINE}")
    wheel = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": -240, "modifiers": 2}
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    browser.until(f"return Number(document.getElementById('{TIMELINE}').dataset.hi) < {before[1]}")
    before = window(browser)
    ActionChains(browser.driver).click_and_hold(place).move_by_offset(-120, 0).release().perform()
    after = window(browser)
    assert after[0] > before[0]
    assert after[1] - after[0] == pytest.approx(before[1] - before[0])
    place.send_keys("0")
    assert window(browser) == pytest.approx((lo, hi))
    assert browser.said() == []


def test_the_page_still_scrolls_over_the_timeline(browser: Browser, good_page: Path) -> None:
    browser.open(good_page)
    x, y = centre(browser, f"#{TIMELINE}")
    before, seen = browser.run("return scrollY"), window(browser)
    wheel = {"type": "mouseWheel", "x": x, "y": y, "deltaX": 0, "deltaY": 200}
    browser.driver.execute_cdp_cmd("Input.dispatchMouseEvent", wheel)
    browser.until(f"return scrollY > {before}")
    assert window(browser) == seen


def test_what_is_under_the_pointer_is_told(browser: Browser, good_page: Path) -> None:
    browser.open(good_page)
    told = hovered(browser, f"#{TIMELINE} .pieces-drawn path")
    assert told.startswith("rank 0, step 1\n")
    assert "attempt\n0" in told
    assert "save of step" in hovered(browser, f"#{TIMELINE} .saves-drawn path")
    assert "started from" in hovered(browser, "#r0-lineage-lineage path[fill='url(#h-lost)']")
    assert "s00000002-a0000" in hovered(browser, "#r0-lineage-lineage .nodes-drawn path")


def test_keys_go_from_kill_to_kill_and_tell_of_each(browser: Browser, good_page: Path) -> None:
    browser.open(good_page)
    place = browser.driver.find_element("id", TIMELINE)
    centre(browser, f"#{TIMELINE}")  # a tip is gone when the page scrolls
    told = []
    for key in "nnpp":
        place.send_keys(key)
        told.append(browser.run("return document.getElementById('tip').innerText"))
        lo, hi = window(browser)
        assert lo <= float(told[-1].split("time\n")[1].split(" ")[0]) <= hi
    first, second = told[:2]
    assert "sigkill of rank 1 at step.end" in first
    assert "sigkill of committer at publish.before" in second
    assert told[2:] == [first, second]  # before the first comes the last


@pytest.mark.parametrize(
    ("altered", "words", "fill"),
    [("gap_run", "positions 41–42: 2 samples never applied", "var(--card)"),
     ("duplicate_run", "positions 45–46: 2 samples applied more than once", "url(#h-repeated)")],
)  # fmt: skip
@pytest.mark.parametrize("width", [1280, 390])
def test_a_fault_stands_out(
    request: pytest.FixtureRequest, browser: Browser, written: Page, altered: str, words: str, fill: str, width: int
) -> None:
    browser.open(written(request.getfixturevalue(altered)), width)
    assert browser.said() == []
    assert "invalid" in browser.run("return document.querySelector('.stamp').innerText")
    assert words in browser.run("return document.querySelector('#r0-ledger .alarms').innerText")
    found: list[dict[str, Any]] = browser.run(
        "return [...document.querySelectorAll('#r0-ledger-ledger .faults-drawn path')].map(e => { const b = "
        "e.getBoundingClientRect(); return {fill: e.getAttribute('fill'), edge: e.getAttribute('stroke'), width: "
        "b.width, height: b.height}})"
    )  # fmt: skip
    assert len(found) == 1
    assert (found[0]["fill"], found[0]["edge"]) == (fill, "var(--kill)")
    assert min(found[0]["width"], found[0]["height"]) >= 9
    assert words in hovered(browser, "#r0-ledger-ledger .faults-drawn path")


def test_a_hostile_run_changes_nothing(browser: Browser, tmp_path: Path, good_run: Path) -> None:
    path = tmp_path / "evil.html"
    path.write_text(document([evil(shown(good_run))]))
    browser.open(path)
    assert browser.said() == []
    assert browser.run("return document.images.length") == 0
    assert "<img src=x onerror=alert(1)>" in browser.run("return document.querySelector('.says').innerText")
    browser.driver.find_element("id", TIMELINE).send_keys("n")
    assert "<img" in browser.run("return document.getElementById('tip').innerText")
    assert browser.run("return document.images.length") == 0


def test_a_long_run_is_drawn_in_few_pieces_and_shows_its_finest_detail(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_text(document([large(tmp_path / "run", STEPS, KILLS)]))
    assert path.stat().st_size < 1_300_000
    browser.open(path)
    assert browser.said() == []
    data = f"document.getElementById('{TIMELINE}').dataset"
    assert browser.run(f"return Number({data}.pieces)") < 3000  # two ranks have 6,000 steps
    assert browser.run("return document.querySelectorAll('.map b').length") == KILLS
    place = browser.driver.find_element("id", TIMELINE)
    place.send_keys("n")
    while browser.run(f"return Number({data}.level)") > 0:
        before = window(browser)
        place.send_keys("+")
        assert window(browser)[1] - window(browser)[0] < before[1] - before[0]
    told = hovered(browser, f"#{TIMELINE} .pieces-drawn path")
    assert ", step " in told
    assert browser.said() == []


def test_print_has_everything_and_no_controls(browser: Browser, good_page: Path) -> None:
    browser.open(good_page)
    shown = {"printBackground": True, "paperWidth": 8.27, "paperHeight": 11.69}
    pdf = base64.b64decode(browser.driver.execute_cdp_cmd("Page.printToPDF", shown)["data"])
    assert pdf.startswith(b"%PDF")
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    assert browser.run("return getComputedStyle(document.querySelector('.tools')).display") == "none"
    assert browser.run("return getComputedStyle(document.querySelector('.verdict')).display") == "flex"
    browser.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})
