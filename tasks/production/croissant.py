"""The description of a published version in Croissant 1.1 with its RAI fields, for catalogues of data sets.

Made from the manifest, the schema of a published file and the audit alone: it names published columns only, and no attribute that
is not published, no time and no value of a record. The same version always gets the same bytes.
"""

import glob
import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

import pyarrow as pa

from tasks.production.manifest import NO_VALUE, Manifest

TABLE, MEDIA, RECORDS = "table", "media", "records"  # ids in the document
CONFORMS_TO = ["http://mlcommons.org/croissant/1.1", "http://mlcommons.org/croissant/RAI/1.0"]
OF_CROISSANT = (
    "arrayShape", "citeAs", "column", "containedIn", "equivalentProperty", "extract", "field", "fileObject", "fileProperty",
    "fileSet", "format", "includes", "isArray", "isLiveDataset", "jsonPath", "key", "md5", "parentField", "path", "recordSet",
    "references", "regex", "repeated", "replace", "samplingRate", "separator", "source", "subField", "transform",
)  # fmt: skip
CONTEXT = {
    "@language": "en",
    "@vocab": "https://schema.org/",
    "sc": "https://schema.org/",
    "cr": "http://mlcommons.org/croissant/",
    "rai": "http://mlcommons.org/croissant/RAI/",
    "dct": "http://purl.org/dc/terms/",
    "conformsTo": "dct:conformsTo",
    "dataType": {"@id": "cr:dataType", "@type": "@vocab"},
    "data": {"@id": "cr:data", "@type": "@json"},
    "examples": {"@id": "cr:examples", "@type": "@json"},
    "name": {"@container": "@language"},
    "description": {"@container": "@language"},
    **{name: f"cr:{name}" for name in OF_CROISSANT},
}
NUMBERS = {
    "halffloat": "Float16", "float": "Float32", "double": "Float64", "int8": "Int8", "int16": "Int16", "int32": "Int32",
    "int64": "Int64", "uint8": "UInt8", "uint16": "UInt16", "uint32": "UInt32", "uint64": "UInt64",
}  # fmt: skip


def croissant_of(manifest: Manifest, schema: pa.Schema | None, base: str) -> bytes:
    """The document of a version, for a folder `base` below the target; `schema` is that of a published file, None without any."""
    paths = _paths(manifest, base)
    tables = [path for path in paths if path.endswith(".parquet")]
    media = [path for path in paths if not path.endswith(".parquet")]
    files = [_file_set(TABLE, "Parquet files of this version.", "application/x-parquet", tables)] if tables else []
    if media:
        files.append(_file_set(MEDIA, "Files that the table's paths point to.", "application/octet-stream", media))
    fields = [_field(field) for field in schema or ()] + [_folder_field(name) for name in folder_columns(manifest)]
    records = {"@type": "cr:RecordSet", "@id": RECORDS, "name": RECORDS, "field": fields}
    rows, names = _total(manifest, "rows"), sorted({one.pins.dataset for one in manifest.partitions.values()})
    name = ", ".join(names) or "protected lake"
    document = {
        "@context": CONTEXT,
        "@type": "sc:Dataset",
        "name": name,
        "description": f"{name}, protected by substitution: {rows} rows, each one the record of a donor. "
        "Made by PASS Pipeline, whose manifest of this version has a digest of every file.",
        "conformsTo": CONFORMS_TO,
        "version": f"{manifest.version}.0.0",
        "distribution": files,
        "recordSet": [records] if fields else [],
        **_responsible_ai(manifest),
    }
    return json.dumps(document, indent=2, ensure_ascii=False).encode()


def _responsible_ai(manifest: Manifest) -> dict[str, Any]:
    lost, read = _total(manifest, "quarantined"), _total(manifest, "rows_in")
    drawn = "Every source record was replaced by the record of a donor, drawn with a secret key and a trained probability."
    return {
        "rai:dataPreprocessingProtocol": [drawn, "Rows are in keyed order, and ids are not published."],
        "rai:personalSensitiveInformation": [
            "Rows are records of real people, the donors. Which source record a row replaces is not published.",
            _audited(manifest.audit),
        ],
        "rai:dataLimitations": [
            "Attributes are hidden statistically. This is not differential privacy, and not by itself anonymous data.",
            "The audit's figures hold for one row per record; several rows known to belong to one person reveal more.",
        ],
        "rai:dataBiases": ["Rows repeat the pool's donors: classes and rare features follow the pool, not the population."],
        "rai:dataCollectionMissingData": f"{lost} of {read} source records could not be read and are left out.",
        "rai:dataReleaseMaintenancePlan": "New versions replace this one as a whole, and remove donors who have withdrawn.",
    }


def _audited(audit: Mapping[str, Any]) -> str:
    """The verdict and the worst private attribute's figures; attributes are not named, since they are not published."""
    details = audit.get("details", {})
    accepted = " and accepted" if details.get("accepted_undecided") else ""
    records = f"{audit['records']} of {audit['of']} new records ({audit['basis']})"
    text = f"Audit before publishing: {audit['verdict']}{accepted}, {records}."
    found = list(details.get("attributes", details.get("champion", {})).values())
    private = [one | one["nag"] if isinstance(one["nag"], Mapping) else one | {"value": one["nag"]} for one in found]
    private = [one for one in private if one["role"] == "private"]
    if not private:
        return text
    worst = max(private, key=lambda one: float(one["value"]))
    value, low, high = (f"{100 * float(worst[name]):.1f} %" for name in ("value", "low", "high"))
    share = f"keep {value} of their advantage over guessing (95 % interval {low} to {high})"
    return f"{text} For the worst of {len(private)} private attribute(s), attackers {share}."


def _field(field: pa.Field) -> dict[str, Any]:
    kind, more = field.type, dict[str, Any]()
    if pa.types.is_fixed_size_list(kind):
        more = {"isArray": True, "arrayShape": str(kind.list_size)}
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        more = {"isArray": True, "arrayShape": "-1"}
    if more:
        kind = kind.value_type
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        more["description"] = "Bytes of an encoded file."
    extract = {"column": field.name}
    return _described(field.name, _data_type(kind), extract) | more


def _folder_field(name: str) -> dict[str, Any]:
    """A column whose values are in the names of folders."""
    field = _described(name, "sc:Text", {"fileProperty": "fullpath"})
    field["source"]["transform"] = {"regex": f"(?:.*/)?{re.escape(name)}=([^/]*)/.*"}
    return field | {"description": f"From the folders' names, percent-encoded; {NO_VALUE} stands for no value."}


def _described(name: str, kind: str, extract: dict[str, str]) -> dict[str, Any]:
    source = {"fileSet": {"@id": TABLE}, "extract": extract}
    return {"@type": "cr:Field", "@id": f"{RECORDS}/{name}", "name": name, "dataType": kind, "source": source}


def _data_type(kind: pa.DataType) -> str:
    if pa.types.is_boolean(kind):
        return "sc:Boolean"
    if pa.types.is_date(kind):
        return "sc:Date"
    if pa.types.is_timestamp(kind):
        return "sc:DateTime"
    return f"cr:{NUMBERS[str(kind)]}" if str(kind) in NUMBERS else "sc:Text"


def _file_set(name: str, description: str, encoding: str, paths: list[str]) -> dict[str, Any]:
    """The files by their exact paths below this document's folder, which may hold other versions, too."""
    made = {"@type": "cr:FileSet", "@id": name, "name": name, "description": description}
    return made | {"encodingFormat": encoding, "includes": [glob.escape(path) for path in paths]}


def _paths(manifest: Manifest, base: str) -> list[str]:
    entries = ((manifest.places[name], one.files) for name, one in manifest.partitions.items())
    whole = [f"{place}/{file.path}" for place, files in entries for file in files]
    return [path.removeprefix(f"{base}/") if base else path for path in whole]


def folder_columns(manifest: Manifest) -> list[str]:
    """The published columns whose values are in the names of folders."""
    first = next(iter(manifest.partitions), "")
    return [unquote(part.split("=", 1)[0]) for part in first.split("/") if "=" in part]


def _total(manifest: Manifest, name: str) -> int:
    return sum(getattr(one, name) for one in manifest.partitions.values())
