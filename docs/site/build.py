"""Builds the documentation's site: `make docs`, or `python docs/site/build.py --out FOLDER`; it is in FOLDER/site.

Pages are the Markdown of the project, its executed notebooks, and references made from the code.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import notebooks
import pages
import reference

HERE = Path(__file__).resolve().parent
PROJECT = HERE.parents[1]
REMOTE = "https://unpkg.com/iframe-worker/shim"
GENERATED = {
    "reference/commands.md": reference.commands,
    "reference/configuration.md": reference.configuration,
    "reference/python.md": reference.python,
}


def main() -> None:
    """Writes the pages, then lets Zensical make the site from them."""
    parser = argparse.ArgumentParser(description="Build the documentation's site.")
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "docs", help="folder; it is replaced as a whole")
    out = parser.parse_args().out.resolve()
    shutil.rmtree(out, ignore_errors=True)
    write_pages(out / "pages")
    shutil.copy(HERE / "zensical.toml", out)
    command = [sys.executable, "-m", "zensical", "build", "--strict", "--config-file", str(out / "zensical.toml")]
    done = subprocess.run(command, cwd=out, check=False)
    if done.returncode:
        sys.exit(done.returncode)
    make_offline(out / "site")
    sys.stdout.write(f"{out / 'site' / 'index.html'}\n")


def make_offline(site: Path) -> None:
    """Puts our own script in the place of the one that Zensical's offline plugin loads from the network for the search."""
    for page in sorted(site.rglob("*.html")):
        text, root = page.read_text(), "../" * len(page.relative_to(site).parents[1:])
        if REMOTE not in text:
            sys.exit(f"error: {page}: expected {REMOTE}, found none; see what this release of Zensical loads for its search")
        page.write_text(text.replace(REMOTE, f"{root}worker.js"))


def write_pages(folder: Path) -> None:
    """All pages as Markdown, and the files that they link to."""
    known = pages.pages_of(PROJECT)
    for source, place in known.items():
        path, target = PROJECT / source, folder / place
        if path.is_dir() or source == "docs/README.md":
            continue  # the navigation replaces lists of pages
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".ipynb":
            target.write_text(notebooks.to_markdown(path))
            shutil.copy(path, target.parent)
        elif path.suffix == ".md":
            target.write_text(pages.as_page(path.read_text(), source, known))
        else:
            shutil.copy(path, target)
    for name in ("site.css", "worker.js"):
        shutil.copy(HERE / name, folder)
    for place, made in GENERATED.items():
        (folder / place).parent.mkdir(parents=True, exist_ok=True)
        (folder / place).write_text(made())
    for name, heading in {"adr": "Decisions", "tutorials": "Tutorials"}.items():
        listed = [path for path in sorted((folder / name).glob("*.md")) if path.name != "index.md"]
        lines = [f"- [{path.read_text().partition(chr(10))[0].lstrip('# ')}]({path.name})" for path in listed]
        (folder / name / "index.md").write_text("\n".join([f"# {heading}", "", *lines, ""]))


if __name__ == "__main__":
    main()
