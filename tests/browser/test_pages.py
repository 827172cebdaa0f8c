"""The report and the comparison as a browser shows them, to people who see them, print them or listen to them."""

import itertools
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.browser.conftest import PAGES, Opened

Visit = Callable[..., Opened]

BROKEN = """<!doctype html><html><head><title>x</title></head><body>
<p style="color: #ccc; background: #fff">hardly readable</p><img src="http://127.0.0.1:9/picture.png">
<h4>a heading out of order</h4><div style="width: 3000px">wide</div><svg></svg>
<script>console.error("broken")</script></body></html>"""


@pytest.fixture(scope="session")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The control: everything that the tests below look for is wrong here."""
    path = tmp_path_factory.mktemp("broken") / "broken.html"
    path.write_text(BROKEN)
    return path


def _overflow(opened: Opened) -> int:
    return int(opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth"))


def _empty_figures(opened: Opened) -> list[str]:
    """Figures that take no room, draw nothing, or have no words for those who cannot see them."""
    found: list[str] = opened.page.evaluate(
        """() => [...document.querySelectorAll("svg")].filter(svg => {
            for (let box = svg.closest("details"); box; box = box.parentElement.closest("details")) box.open = true;
            const drawn = [...svg.querySelectorAll("rect, path, line, circle")].some(shape => {
                const box = shape.getBBox();
                return box.width + box.height > 0;
            });
            const room = svg.getBoundingClientRect();
            return !drawn || room.width < 100 || room.height < 40 || !(svg.getAttribute("aria-label") || "").trim();
        }).map(svg => svg.outerHTML.slice(0, 100))"""
    )
    return found


@pytest.mark.parametrize("name", PAGES)
def test_page_loads_quietly_and_asks_for_nothing(name: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[name])
    assert opened.complaints == []
    assert opened.requests == [pages[name].as_uri()]
    assert opened.page.evaluate("document.scripts.length") == 0


@pytest.mark.parametrize("name", PAGES)
def test_all_figures_are_there(name: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[name])
    assert _empty_figures(opened) == []
    files = len(list((pages[name].parent / "figures").glob("*.svg")))
    shown = opened.page.locator("svg").count()
    assert shown == files if name != "comparison" else shown >= 6
    assert name == "unlabelled" or shown > 5


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_axe_finds_nothing(name: str, scheme: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[name], color_scheme=scheme)
    opened.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert opened.violations() == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_page_follows_its_readers_colours(scheme: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages["passing"], color_scheme=scheme)
    red, *_ = map(int, re.findall(r"\d+", opened.page.evaluate("getComputedStyle(document.body).backgroundColor")))
    assert (red > 200) == (scheme == "light")
    ink = opened.page.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    assert (int(re.findall(r"\d+", ink)[0]) < 100) == (scheme == "light")


@pytest.mark.parametrize("width", [360, 390, 768, 1280])
@pytest.mark.parametrize("name", PAGES)
def test_page_fits_its_screen(name: str, width: int, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[name], viewport={"width": width, "height": 800})
    opened.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert _overflow(opened) <= 0


@pytest.mark.parametrize("name", PAGES)
def test_page_prints(name: str, pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages[name], color_scheme="dark")
    opened.page.emulate_media(media="print")
    assert opened.page.evaluate("getComputedStyle(document.querySelector('nav')).display") == "none"
    ink = opened.page.evaluate("getComputedStyle(document.body).color")
    assert int(re.findall(r"\d+", ink)[0]) < 100  # dark ink on paper, whatever the screen's colours
    folded = opened.page.evaluate(
        """[...document.querySelectorAll("details > :not(summary)")]
            .filter(part => part.getBoundingClientRect().height === 0).length"""
    )
    assert folded == 0
    printed = opened.page.pdf(format="A4")
    assert printed.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", printed)) >= 2


def test_keyboard_reaches_the_content_and_wide_tables(pages: dict[str, Path], visit: Visit) -> None:
    opened = visit(pages["passing"])
    opened.page.keyboard.press("Tab")
    assert opened.page.evaluate("document.activeElement.textContent") == "Skip to the content"
    assert opened.page.evaluate("document.activeElement.getBoundingClientRect().left") >= 0
    opened.page.keyboard.press("Enter")
    assert opened.page.evaluate("document.activeElement.id") == "content"
    reachable = opened.page.evaluate("[...document.querySelectorAll('.scroll')].every(part => part.tabIndex === 0)")
    assert reachable


@pytest.mark.parametrize("name", PAGES)
def test_headings_landmarks_and_tables_are_in_order(name: str, pages: dict[str, Path], visit: Visit) -> None:
    page = visit(pages[name]).page
    levels = page.evaluate("[...document.querySelectorAll('h1,h2,h3,h4')].map(h => Number(h.tagName[1]))")
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))
    assert page.evaluate("['header', 'nav', 'main', 'footer'].every(tag => document.querySelectorAll(tag).length === 1)")
    assert page.evaluate("[...document.querySelectorAll('table')].every(t => t.caption && t.tHead)")
    assert page.evaluate("[...document.querySelectorAll('th')].every(cell => cell.scope)")
    assert page.evaluate("[...document.querySelectorAll('a[href]')].every(a => document.querySelector(a.getAttribute('href')))")


def test_broken_page_is_found_out(broken: Path, visit: Visit) -> None:
    """The control of every test above."""
    opened = visit(broken, viewport={"width": 390, "height": 800})
    assert "broken" in opened.complaints
    assert "http://127.0.0.1:9/picture.png" in opened.requests
    assert len(_empty_figures(opened)) == 1
    assert _overflow(opened) > 2000
    assert {"color-contrast", "image-alt", "html-has-lang", "landmark-one-main", "region"} <= set(opened.violations())
