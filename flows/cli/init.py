"""The command `init`: looks at a lake and writes a params.yaml of about ten lines. Prints counts and types, never values."""

import re
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any

import typer

from flows.cli.config import stop_at
from flows.cli.options import PARAMS

if TYPE_CHECKING:
    import pyarrow as pa

    from tasks.lakes.open import OpenLake

PERSON = re.compile(r"person|user|customer|speaker|subject|patient|client|member|owner|employee|participant", re.IGNORECASE)
MAGIC = {b"\xff\xd8\xff": "image", b"\x89PNG": "image", b"RIFF": "audio", b"fLaC": "audio", b"OggS": "audio", b"ID3": "audio"}
EXTRACTORS = {"vector": "identity", "image": "facenet", "audio": "logmel"}
Columns = Annotated[str | None, typer.Option(help="Columns, separated by commas.", show_default=False)]
Column = Annotated[str | None, typer.Option(help="Column. Default: looked for.", show_default=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Lake:
    """What was found in a lake, without any value."""

    source: str
    format: str
    rows: int
    types: dict[str, str]
    classes: dict[str, int]  # columns that can be counted -> number of different values
    payload: list[str]
    payload_kind: str


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
    from pass_core.errors import ConfigError
    from tasks.preflight import check_run

    if out.exists() and not yes:
        raise ConfigError(f"{out}: expected no file there, found one; give --out or, to replace it, --yes")
    lake = look(source)
    _show(lake)
    ids = [column for column, count in lake.classes.items() if count == lake.rows]
    chosen = {
        "record_id": record_id or next(iter(sorted(ids, key=lambda column: "id" not in column.lower())), None),
        "person": person or next((c for c, n in lake.classes.items() if PERSON.search(c) and 1 < n < lake.rows), None),
        "private": _columns("private", private, yes),
        "useful": _columns("useful", useful, yes),
        "general": _columns("general", general, yes),
    }
    if not chosen["record_id"]:
        raise ConfigError(f"{source}: expected a column with another value in every row, found none; name one with --record-id")
    short = name or re.sub(r"[^a-z0-9]+", "_", Path(source.split("://")[-1]).stem.lower()).strip("_") or "lake"
    out.write_text(_params(lake, short if short[0].isalpha() else f"lake_{short}", chosen))
    stop_at(check_run(out))
    typer.echo(f"\nWrote {out}. Next: pass-pipeline run --params {out} --engine in-process")


def look(source: str) -> Lake:
    """A lake's format, size, columns, and how many different values they have.

    Raises:
        DataError: there is no Parquet, Delta or CSV table at `source`, or none with a payload.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    from tasks.lakes.open import plain

    lake = _open(source if "://" in source else str(Path(source).resolve()))
    schema, classes = lake.table.schema, {}
    payload, kind = _payload(lake)
    for field in schema:
        if field.name not in payload and not pa.types.is_nested(field.type) and not pa.types.is_floating(field.type):
            with lake.reading():
                column = lake.table.to_table(columns=[field.name]).column(0)
            classes[field.name] = pc.count_distinct(pa.chunked_array([plain(part) for part in column.chunks])).as_py()
    return Lake(
        source=lake.source,
        format=lake.columns.format,
        rows=lake.table.count_rows(),
        types={field.name: _type(field.type) for field in schema},
        classes=classes,
        payload=payload,
        payload_kind=kind,
    )


def _open(source: str) -> "OpenLake":
    from pass_core.errors import DataError
    from tasks.lakes.open import find_filesystem, open_lake

    filesystem, folder = find_filesystem(source)
    delta = filesystem.get_file_info(f"{folder}/_delta_log").type.name == "Directory"
    columns: Any = {"record_id": "", "person": None, "block": None, "split": None, "columns": tuple}
    for kind in ("delta",) if delta else ("parquet", "csv"):
        try:
            found: Any = SimpleNamespace(format=kind, **columns)
            return open_lake(source, found)
        except DataError:
            continue
    raise DataError(f"{source}: expected a Parquet, Delta or CSV table, found none; check the path")


def _payload(lake: "OpenLake") -> tuple[list[str], str]:
    """The column of images, sounds or vectors; else all columns of floats together."""
    import pyarrow as pa

    from pass_core.errors import DataError

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


def _type(kind: "pa.DataType") -> str:
    return str(getattr(kind, "value_type", kind)) + (" list" if "list" in str(kind) else "")


def _show(lake: Lake) -> None:
    typer.echo(f"{lake.rows} records ({lake.format}); payload: {', '.join(lake.payload)} ({lake.payload_kind})")
    for column, kind in lake.types.items():
        count = lake.classes.get(column)
        typer.echo(f"  {column:24} {kind:12} {'' if count is None else f'{count} different values'}")


def _columns(role: str, given: str | None, yes: bool) -> list[str]:
    """The columns of a role: the option's, or asked for."""
    meaning = {"private": "must not be inferred", "useful": "must stay", "general": "should stay, not named in training"}[role]
    if given is None and not yes:
        given = typer.prompt(f"{role} columns, by commas ({meaning})", default="" if role == "general" else None)
    return [column.strip() for column in (given or "").split(",") if column.strip()]


def _params(lake: Lake, name: str, chosen: dict[str, Any]) -> str:
    def roles(role: str) -> str:
        counts = ", ".join(f"{lake.classes.get(column, 0)} classes" for column in chosen[role])
        return f"[{', '.join(chosen[role])}]{'  # ' if counts else ''}{counts}"

    people = f"person: {chosen['person']}" if chosen["person"] else "# person: COLUMN  # none found: every record is a person"
    lines = [
        "# Written by `pass-pipeline init`. All other settings have defaults:",
        "#   pass-pipeline config show | pass-pipeline config explain SECTION",
        "dataset:",
        f"  {name}:",
        "    reader: lake",
        f"    source: {lake.source}  # {lake.rows} records",
        *([] if lake.format == "parquet" else [f"    format: {lake.format}"]),
        f"    record_id: {chosen['record_id']}",
        f"    {people}",
        f"    payload: [{', '.join(lake.payload)}]",
        f"    payload_kind: {lake.payload_kind}",
        f"    private: {roles('private')}",
        f"    useful: {roles('useful')}",
        f"    general: {roles('general')}",
        f"    extractor: {EXTRACTORS[lake.payload_kind]}",
    ]
    return "\n".join(lines) + "\n"
