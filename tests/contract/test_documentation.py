"""The documentation's sources: links and anchors lead somewhere, quoted messages are the code's, and licences are complete."""

import itertools
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from tests.conftest import PROJECT

SOURCES = [path for package in ("pass_core", "tasks", "flows") for path in sorted((PROJECT / package).rglob("*.py"))]
FENCED = re.compile(r"^```.*?^```$|`[^`\n]+`", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def _anchors(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ +(.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"[^\w\- ]", "", heading.strip()).replace(" ", "-") for heading in plain}


def _broken(pages: list[Path]) -> list[str]:
    """Links of these pages that lead nowhere."""
    wrong = []
    for page in pages:
        for link in LINK.findall(FENCED.sub("", page.read_text())):
            path, _, anchor = unquote(link).partition("#")
            if re.match(r"[a-z]+:", path):
                continue
            target = page.parent / path if path else page
            if not target.exists() or (anchor and target.suffix == ".md" and anchor not in _anchors(target.read_text())):
                wrong.append(f"{page.name}: {link}")
    return wrong


def test_every_link_and_anchor_of_the_sources_exists(tmp_path: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "*.md"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    assert len(tracked.splitlines()) > 50
    assert not _broken([PROJECT / name for name in tracked.splitlines()])
    (tmp_path / "a.md").write_text(
        "# One `two`, three\n[x](#one-two-three) [y](b.md) [z](a.md#two) [w](https://example.org/none)\n"
    )
    assert _broken([tmp_path / "a.md"]) == ["a.md: b.md", "a.md: a.md#two"]  # the control


def test_troubleshooting_quotes_real_messages() -> None:
    """The first column quotes messages with `…` in place of what varies: every other part of them is in the code."""
    code = "\n".join(re.sub(r'"\s*\n\s*f?"', "", path.read_text()) for path in SOURCES)
    rows = re.findall(r"^\| `([^`]+)`", (PROJECT / "docs" / "troubleshooting.md").read_text(), re.MULTILINE)
    parts = [part.strip(" ;,:()") for row in rows for part in re.split("…|, protect.draws_at_most is", row)]
    assert len(rows) > 30
    assert not [part for part in parts if part not in code and part.replace('"', '\\"') not in code]


def _dependencies() -> dict[str, list[str]]:
    """Package -> what pyproject.toml asks of it, over all extras."""
    project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    asked: dict[str, list[str]] = {}
    for line in itertools.chain(project["dependencies"], *project["optional-dependencies"].values()):
        name, _, version = re.fullmatch(r"([A-Za-z0-9_.-]+)(\[.*?\])?(.*)", line).groups()  # type: ignore[union-attr]
        asked.setdefault(re.sub(r"[-_.]+", "-", name).lower(), []).append(version)
    return asked


def test_licences_page_lists_every_direct_dependency() -> None:
    page = (PROJECT / "docs" / "licences.md").read_text()
    direct = page.partition("## Direct dependencies")[2].partition("\n## ")[0]
    rows = {row[0]: row[1:] for row in re.findall(r"^\| ([^|]+) \| ([^|]*) \| ([^|]*) \| ([^|]*) \|$", direct, re.MULTILINE)}
    asked = _dependencies()
    assert len(asked) > 40
    assert set(rows) - {"package", "---"} == set(asked)
    for name, versions in asked.items():
        assert set(rows[name][0].replace("any", "").split(" or ")) == set(versions), name
        assert rows[name][2] != "unknown" or "production" not in rows[name][1], name
