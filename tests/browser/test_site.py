"""The documentation's site, built as `make docs` builds it: no link is broken, nothing comes from the network, search works."""

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from playwright.sync_api import Browser

import pass_core
from tests.conftest import PROJECT

LOADED = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src"}


class _Page(HTMLParser):
    """Anchors and links of a page, and what it loads."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = {""}
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Notes one element."""
        given = dict(attrs)
        self.ids |= {given.get("id") or "", given.get("name") or ""}
        link = given.get(LOADED.get(tag, "href"))
        if link and tag in ("a", *LOADED) and given.get("rel") != "canonical":
            (self.links if tag == "a" else self.loaded).append(link)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    folder = tmp_path_factory.mktemp("docs")
    command = [sys.executable, str(PROJECT / "docs" / "site" / "build.py"), "--out", str(folder / "built")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == str(folder / "built" / "site" / "index.html")
    return folder / "built" / "site"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, _Page]:
    """Every page of the site."""
    return {path: _Page(path) for path in sorted(site.rglob("*.html"))}


def _elsewhere(link: str) -> bool:
    return bool(urlsplit(link).scheme or urlsplit(link).netloc)


def test_every_link_and_anchor_of_the_site_exists(site: Path, pages: dict[Path, _Page]) -> None:
    broken = []
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # its links are those of a server's root
        for link in filter(lambda link: not _elsewhere(link), page.links + page.loaded):
            parts = urlsplit(link)
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            target = target / "index.html" if target.is_dir() else target
            anchor = unquote(parts.fragment)
            if not target.is_file() or (target in pages and anchor not in pages[target].ids):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert len(pages) > 35
    assert sum(len(page.links) for page in pages.values()) > 2000
    assert not broken


def test_all_markdown_is_rendered(pages: dict[Path, _Page]) -> None:
    """The site's Markdown differs from GitHub's: what it does not know stays on the page as it was typed."""
    left = re.compile(r"^\s*\|.*\|\s*$|^- \S.*|\*\*\w.*|^#+ \w.*|\]\(", re.MULTILINE)
    wrong = []
    for path in pages:
        text = re.sub(r"<(pre|code|script|style)\b.*?</\1>", "", path.read_text(), flags=re.DOTALL)
        wrong += [f"{path.name}: {found[0][:80]}" for found in left.finditer(re.sub(r"<[^>]+>", "", text))]
    assert not wrong


def test_nothing_is_loaded_from_elsewhere(pages: dict[Path, _Page]) -> None:
    assert sum(len(page.loaded) for page in pages.values()) > 100
    assert not [link for page in pages.values() for link in page.loaded if _elsewhere(link)]


def test_reference_covers_commands_settings_and_python(site: Path, pages: dict[Path, _Page]) -> None:
    ids = {name: pages[site / "reference" / f"{name}.html"].ids for name in ("commands", "configuration", "python")}
    commands = {"run", "lake-protect", "lake-donors-withdraw", "audit-pair", "console-build", "datasets", "datasets-add"}
    assert commands <= ids["commands"]
    sections = {"pool", "train", "protect", "auditthresholds", "auditattacksnetwork", "datasetlake"}
    assert sections | {"methodtransport_substitution"} <= ids["configuration"]
    methods = {f"protector{name}" for name in ("fit", "transform", "save", "load", "records")}
    assert {name.lower() for name in pass_core.__all__} | methods <= ids["python"]


def test_tutorial_shows_what_the_notebook_printed(site: Path) -> None:
    text = (site / "tutorials" / "own_lake.html").read_text()
    assert "Published" in text or "published" in text
    assert "\x1b[" not in text
    assert (site / "tutorials" / "own_lake.ipynb").exists()


def test_search_works_from_files_without_a_network(site: Path, browser: Browser) -> None:
    page, asked, errors = browser.new_page(), list[str](), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.goto((site / "index.html").as_uri())
    page.keyboard.press("Control+k")
    page.get_by_placeholder("Search").fill("draw ledger", timeout=60_000)
    found = page.locator("a[href*=the-draw-ledger]").first
    found.click(timeout=60_000)
    page.wait_for_url("**/operations.html*", timeout=60_000)
    page.close()
    assert not errors
    assert not [url for url in asked if not url.startswith(("file:", "data:", "blob:", "about:"))]
