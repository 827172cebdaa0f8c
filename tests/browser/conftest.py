"""A headless Chromium, and pages that note what they say and ask for."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from tasks.reports.compare import write_comparison
from tasks.reports.page import write_report
from tasks.reports.publish import publish_report
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json, write_json
from tests.documents import of_many_attributes, of_many_classes, with_strangers, without_labels

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-quic",
]
PAGES = ("passing", "failing", "unlabelled", "crowded", "comparison")


@dataclass
class Opened:
    """A page, and what happened while it loaded."""

    page: Page
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def violations(self) -> list[str]:
        """What axe-core finds."""
        return [violation["id"] for violation in Axe().run(self.page).response["violations"]]


@pytest.fixture(scope="module")  # Playwright keeps an event loop running in this thread, which others must not meet
def browser() -> Iterator[Browser]:
    """Chromium of the system; without one the tests are skipped, but fail in continuous integration."""
    found = shutil.which("chromium")
    if found is None:
        message = "no chromium on PATH: apt-get install chromium, to look at the report in a browser"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield chromium
        chromium.close()


@pytest.fixture
def visit(browser: Browser) -> Iterator[Callable[..., Opened]]:
    """Opens a file, with settings of a browser context such as `color_scheme`."""
    contexts = []

    def opened(path: Path, **settings: Any) -> Opened:
        context = browser.new_context(**settings)
        contexts.append(context)
        seen = Opened(context.new_page())
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.on("request", lambda request: seen.requests.append(request.url))
        seen.page.goto(path.as_uri(), wait_until="load")
        return seen

    yield opened
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def pages(tiny_root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of every kind, and a comparison."""
    folder, layout = tmp_path_factory.mktemp("pages"), Layout(tiny_root)
    protected, unprotected = (RunKey("synthetic_motion", method) for method in ("pass_substitution", "identity"))
    document = read_json(layout.artefact("audit", protected))
    passing = with_strangers(document) | {"verdict": "pass", "reasons": []}
    passing["checks"] = [check | {"passed": True} for check in document["checks"]]
    made = {"passing": passing, "unlabelled": without_labels(document), "crowded": of_many_classes(of_many_attributes(document))}
    for name, one in made.items():
        write_json(folder / name / "audit.json", one)
        inputs = {artefact: layout.artefact(artefact, protected) for artefact in ("curves", "model")}
        write_report(folder / name, inputs | {"audit": folder / name / "audit.json"}, provenance=None)
    audits = [layout.artefact("audit", key) for key in (protected, unprotected)]
    write_comparison([*audits, folder / "crowded" / "audit.json"], folder / "comparison" / "report.html")
    return {name: folder / name / "report.html" for name in (*made, "comparison")} | {
        "failing": publish_report(layout, unprotected)
    }
