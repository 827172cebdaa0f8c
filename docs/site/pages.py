"""The Markdown of the project as pages of the site: links lead to pages, and lists are indented as Zensical reads them."""

import posixpath
import re
from collections.abc import Mapping
from pathlib import Path

LINK = re.compile(r"(?<!\\)\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```.*?^```)$", re.MULTILINE | re.DOTALL)


def as_page(text: str, source: str, pages: Mapping[str, str]) -> str:
    """A file's text as its page; `source` and the keys of `pages` are paths in the project, its values paths in the site."""
    parts = FENCE.split(text)
    parts[::2] = [_indented(LINK.sub(lambda link: f"]({_target(link[1], source, pages)})", part)) for part in parts[::2]]
    return "".join(parts)


def _target(link: str, source: str, pages: Mapping[str, str]) -> str:
    """Where a link of a file leads in the site."""
    path, hash_, anchor = link.partition("#")
    if not path or re.match(r"[a-z]+:", path):
        return link
    place = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
    if place not in pages:
        raise ValueError(f"{source}: expected a link to a page or a file of docs, found {link}; link to one that exists")
    return posixpath.relpath(pages[place], posixpath.dirname(pages[source]) or ".") + hash_ + anchor


def _indented(text: str) -> str:
    """What belongs to an item of a list is under its text on GitHub; Zensical expects four spaces, and a blank line before."""
    lines: list[str] = []
    inside = parts = False  # of a list; of an item with several paragraphs
    for line in text.split("\n"):
        if line.startswith("- "):
            lines += [""] if lines and lines[-1] and (parts or not inside) else []
            inside, parts = True, False
        inside = inside and (line.startswith(("- ", "  ")) or not line)
        parts = inside and (parts or not line)
        lines.append(f"  {line}" if inside and line.startswith("  ") else line)
    return "\n".join(lines)


def pages_of(project: Path) -> dict[str, str]:
    """Files and folders of the project that are in the site, and their places there."""
    docs = project / "docs"
    pages = {"README.md": "index.md", "CHANGELOG.md": "changelog.md", "docs/README.md": "index.md"}
    for path in sorted(docs.rglob("*")):
        name = path.relative_to(docs).as_posix()
        if path.is_file() and not name.startswith("site/") and "__pycache__" not in name:
            pages.setdefault(f"docs/{name}", name.replace("README.md", "index.md").replace(".ipynb", ".md"))
    return pages | {f"docs/{folder}": f"{folder}/index.md" for folder in ("adr", "deploy", "tutorials")}
