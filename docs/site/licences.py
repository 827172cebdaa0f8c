"""Writes docs/licences.md from the metadata of the installed packages: `make weekly`, or `python docs/site/licences.py`."""

import importlib.metadata
import re
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PROJECT = Path(__file__).resolve().parents[2]
PAGE = PROJECT / "docs" / "licences.md"
DEVELOPMENT = ("dev", "docs", "weekly")
PRODUCTION = "production"
COPYLEFT = re.compile(r"\b(A?GPL|LGPL|MPL|EPL|EUPL|CDDL)|General Public|Mozilla Public")
LONGEST = 120  # longer texts of the field License are the licence itself, not its name
TEXT = """# Licences

For whoever must clear the licences of what is installed. `make weekly` writes this page from the metadata that the packages
declare, on Linux with Python {python}. Nobody has read the licences themselves; libraries that packages bundle are not listed.
PASS Pipeline itself: Apache-2.0.

{count} packages: {production} are needed in production (with its extras), the others for development. *unknown*: the package
declares nothing. These declare a licence that may oblige whoever distributes them (copyleft):

{copyleft}

## Direct dependencies

{direct}

## Indirect dependencies

{indirect}
"""


def main() -> None:
    """Writes the page."""
    asked = direct_dependencies()
    needed = [requirement for requirement, extras in asked.values() if any(extra not in DEVELOPMENT for extra in extras)]
    production = reached(needed)
    everything = production | reached(requirement for requirement, _ in asked.values())
    missing = sorted(asked.keys() - {name for name in asked if installed(name)})
    if missing:
        sys.exit(f"error: expected every dependency, not installed: {', '.join(missing)}; run pip install -e '.[dev,weekly]'")
    direct = [
        (name, " or ".join(sorted(specifiers(name))) or "any", ", ".join(extras), licence(name))
        for name, (_, extras) in sorted(asked.items())
    ]
    purpose = {name: PRODUCTION if name in production else "development" for name in everything - asked.keys()}
    indirect = [(name, importlib.metadata.version(name), use, licence(name)) for name, use in sorted(purpose.items())]
    text = TEXT.format(
        python=".".join(map(str, sys.version_info[:2])),
        count=len(direct) + len(indirect),
        production=len(production),
        copyleft="\n".join(f"- {row[0]} ({row[2]}): {row[3]}" for row in sorted(direct + indirect) if COPYLEFT.search(row[3])),
        direct=table(("package", "version", "extra", "licence"), direct),
        indirect=table(("package", "version installed", "needed for", "licence"), indirect),
    )
    PAGE.write_text(text)
    sys.stdout.write(f"{PAGE.relative_to(PROJECT)}: {len(direct)} direct and {len(indirect)} indirect packages\n")


def lines() -> list[tuple[str, str]]:
    """What pyproject.toml asks for: extra and requirement."""
    project = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    extras = {PRODUCTION: project["dependencies"], **project["optional-dependencies"]}
    return [(extra, line) for extra, listed in extras.items() for line in listed]


def direct_dependencies() -> dict[str, tuple[Requirement, list[str]]]:
    """Package -> its first requirement, and the extras that ask for it."""
    found: dict[str, tuple[Requirement, list[str]]] = {}
    for extra, line in lines():
        requirement = Requirement(line)
        found.setdefault(canonicalize_name(requirement.name), (requirement, []))[1].append(extra)
    return found


def specifiers(name: str) -> set[str]:
    """The versions that are asked for, as they are written."""
    written = (re.fullmatch(r"([\w.-]+)(?:\[.*?\])?(.*)", line) for _, line in lines())
    return {one[2] for one in written if one and one[2] and canonicalize_name(one[1]) == name}


def reached(requirements: Iterable[Requirement]) -> set[str]:
    """The installed packages that these need, directly or not."""
    waiting, seen = list(requirements), set[tuple[str, str]]()
    while waiting:
        one = waiting.pop()
        name = canonicalize_name(one.name)
        for extra in {"", *one.extras}:
            if (name, extra) not in seen and installed(name):
                seen.add((name, extra))
                needs = map(Requirement, importlib.metadata.requires(name) or ())
                waiting += [need for need in needs if need.marker is None or need.marker.evaluate({"extra": extra})]
    return {name for name, _ in seen}


def installed(name: str) -> bool:
    """Whether the package is installed."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def licence(name: str) -> str:
    """What the package declares: an SPDX expression, else its classifiers, else a short text."""
    metadata: Any = importlib.metadata.metadata(name)
    classifiers = [line.rpartition(" :: ")[2] for line in metadata.get_all("Classifier") or () if line.startswith("License ::")]
    classified = "; ".join(one for one in classifiers if one != "OSI Approved")
    named = [metadata.get("License-Expression"), classified, (metadata.get("License") or "").strip().partition("\n")[0]]
    return next((one.replace("|", "/") for one in named if one and len(one) <= LONGEST), licence_file(name))


def licence_file(name: str) -> str:
    """The first line of the package's licence file."""
    files = [file for file in importlib.metadata.files(name) or () if re.match(r"LICEN[CS]E", file.name)]
    first = next((line.strip() for file in files[:1] for line in file.read_text().splitlines() if line.strip()), "")
    return f"file {files[0].name}: {first}" if 0 < len(first) <= LONGEST else "unknown"


def table(headings: tuple[str, ...], rows: Sequence[tuple[str, ...]]) -> str:
    """A Markdown table."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [headings, ("---",) * len(headings), *rows])


if __name__ == "__main__":
    main()
