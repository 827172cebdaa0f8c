"""The command `init`: looks at a lake and writes a params.yaml of about ten lines. Prints counts and types, never values."""

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import stop_at
from flows.cli.options import PARAMS
from pass_core.errors import ConfigError, DataError

if TYPE_CHECKING:
    from tasks.lakes.open import OpenLake

PERSON = re.compile(r"person|user|customer|speaker|subject|patient|client|member|owner|employee|participant", re.IGNORECASE)
MAGIC = {b"\xff\xd8\xff": "image", b"\x89PNG": "image", b"RIFF": "audio", b"fLaC": "audio", b"OggS": "audio", b"ID3": "audio"}
EXTRACTORS = {"vector": "identity", "image": "facenet", "audio": "logmel"}
Columns = Annotated[str | None, typer.Option(help="Columns, separated by commas.", show_default=False)]
Column = Annotated[str | None, typer.Option(help="Column. Default: looked for.", show_default=False)]


def init(
    source: Annotated[str, typer.Argument(help="Folder, file or URL of the lake.")],
    *,
    private: Columns = None,
    useful: Columns = None,
    general: Columns = None,
    person: Column = None,
    record_id: Column = None,
    name: Annotated[str | None, typer.Option(help="Name of the data set. Default: from the source's.")] = None,
    out: Annotated[Path, typer.Option(help="File to write.")] = PARAMS,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing, and replace the file.")] = False,
) -> None:
    """Look at a lake and write a params.yaml for it."""
    from tasks.preflight import check_run

    if out.exists() and not yes:
        raise ConfigError(f"{out}: expected no file there, found one; give --out or, to replace it, --yes")
    lake = _open(source if "://" in source else str(Path(source).resolve()))
    rows = lake.table.count_rows()
    payload, kind = _payload(lake)
    typer.echo(f"{rows} records ({lake.columns.format}); payload: {', '.join(payload)} ({kind})")
    classes = _count_classes(lake, payload)
    ids = sorted((column for column, count in classes.items() if count == rows), key=lambda column: "id" not in column.lower())
    if not (record_id or ids):
        raise ConfigError(f"{source}: expected a column with another value in every row, found none; name one with --record-id")
    person = person or next((column for column, count in classes.items() if PERSON.search(column) and 1 < count < rows), None)
    roles = {"private": private, "useful": useful, "general": general}
    short = name or re.sub(r"[^a-z0-9]+", "_", Path(source.split("://")[-1]).stem.lower()).strip("_") or "lake"
    lines = [
        "# Written by `pass-pipeline init`. All other settings have defaults:",
        "#   pass-pipeline config show | pass-pipeline config explain SECTION",
        "dataset:",
        f"  {short if short[0].isalpha() else f'lake_{short}'}:",
        "    reader: lake",
        f"    source: {lake.source}  # {rows} records",
        *([] if lake.columns.format == "parquet" else [f"    format: {lake.columns.format}"]),
        f"    record_id: {record_id or ids[0]}",
        f"    person: {person}" if person else "    # person: COLUMN  # none found: every record is a person",
        f"    payload: [{', '.join(payload)}]",
        f"    payload_kind: {kind}",
        *(f"    {role}: {_role(role, given, yes, classes)}" for role, given in roles.items()),
        f"    extractor: {EXTRACTORS[kind]}",
    ]
    out.write_text("\n".join(lines) + "\n")
    stop_at(check_run(out))
    typer.echo(f"\nWrote {out}. Next: pass-pipeline run --params {out} --engine in-process")


def _open(source: str) -> "OpenLake":
    from tasks.lakes.open import find_filesystem, open_lake
    from tasks.sections.lake import LakeColumns, TableFormat

    filesystem, folder = find_filesystem(source)
    delta = filesystem.get_file_info(f"{folder}/_delta_log").type.name == "Directory"
    kinds: tuple[TableFormat, ...] = ("delta",) if delta else ("parquet", "csv")
    for kind in kinds:
        with contextlib.suppress(DataError):
            return open_lake(source, LakeColumns(format=kind, record_id="?", payload=("?",)))  # its columns are not known yet
    raise DataError(f"{source}: expected a Parquet, Delta or CSV table, found none; check the path")


def _payload(lake: "OpenLake") -> tuple[list[str], str]:
    """The column of images, sounds or vectors, or else all columns of floats together; and which of these it is."""
    import pyarrow as pa

    schema = lake.table.schema
    for field in schema:
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            start = lake.table.head(1, columns=[field.name]).column(0)[0].as_py()[:4]
            return [field.name], next((kind for magic, kind in MAGIC.items() if start.startswith(magic)), "image")
    lists = [f.name for f in schema if pa.types.is_nested(f.type) and pa.types.is_floating(getattr(f.type, "value_type", f.type))]
    payload = lists[:1] or [field.name for field in schema if pa.types.is_floating(field.type)]
    if not payload:
        raise DataError(f"{lake.source}: expected a column of bytes, of lists of floats, or of floats as payload, found none")
    return payload, "vector"


def _count_classes(lake: "OpenLake", payload: list[str]) -> dict[str, int]:
    """Prints every column; of those whose values can be counted, how many different ones there are."""
    import pyarrow as pa
    import pyarrow.compute as pc

    from tasks.lakes.open import plain

    classes: dict[str, int] = {}
    for field in lake.table.schema:
        kind = str(getattr(field.type, "value_type", field.type)) + (" list" if "list" in str(field.type) else "")
        if field.name not in payload and not pa.types.is_nested(field.type) and not pa.types.is_floating(field.type):
            with lake.reading():
                column = lake.table.to_table(columns=[field.name]).column(0)
            classes[field.name] = pc.count_distinct(pa.chunked_array([plain(part) for part in column.chunks])).as_py()
        typer.echo(f"  {field.name:24} {kind:12} {f'{classes[field.name]} different values' if field.name in classes else ''}")
    return classes


def _role(role: str, given: str | None, yes: bool, classes: dict[str, int]) -> str:
    """The columns of a role, from its option or asked for, as a list in YAML with their numbers of classes."""
    meaning = {"private": "must not be inferred", "useful": "must stay", "general": "should stay, not named in training"}[role]
    if given is None and not yes:
        given = typer.prompt(f"{role} columns, by commas ({meaning})", default="" if role == "general" else None)
    columns = [column.strip() for column in (given or "").split(",") if column.strip()]
    counts = ", ".join(f"{classes.get(column, 0)} classes" for column in columns)
    return f"[{', '.join(columns)}]{'  # ' if counts else ''}{counts}"
