"""Executed notebooks as Markdown: text, code and the outputs that are stored with it."""

import json
import re
from pathlib import Path
from typing import Any

COLOUR = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")


def to_markdown(notebook: Path) -> str:
    """The notebook as a page that links to the file."""
    cells = json.loads(notebook.read_text())["cells"]
    text = "\n\n".join(part for cell in cells for part in _cell(cell))
    return f"{text}\n\nThis page is [a notebook]({notebook.name}): download it to run it yourself. The tests run it, too.\n"


def _cell(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    shell = source.startswith("!")
    code = re.sub(r"^!", "", source, flags=re.MULTILINE) if shell else source
    printed = [_output(output) for output in cell["outputs"]]
    streams = "".join(text for text in printed if not text.startswith("<"))
    parts = [_fenced(code, "console" if shell else "python")]
    parts += [_fenced(streams, "text")] if streams.strip() else []
    return parts + [text for text in printed if text.startswith("<")]


def _output(output: dict[str, Any]) -> str:
    """What a cell printed, or its value: HTML where there is some, else text."""
    if "text" in output:
        return COLOUR.sub("", "".join(output["text"]))
    if "data" not in output:
        raise ValueError(f"expected text or a value as output, found {output['output_type']}; run the notebook again")
    data = output["data"]
    return "<div>" + "".join(data["text/html"]) + "</div>" if "text/html" in data else "".join(data["text/plain"])


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
