"""audit.json: what an audit found, with what it was asked about; typed here, and told to others as a JSON Schema."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.subject import Subject
from pass_core.auditing.thresholds import DRIFTS, Depth, Limit, Thresholds
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.channel.pool import Forbidden
from pass_core.errors import DataError
from pass_core.storage.files import read_json, rounded

SCHEMA_VERSION: Literal[2] = 2

Basis = Literal["labelled", "unlabelled"]  # whether the classes of the audited records themselves were known
Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """A number per split."""

    train: int
    test: int


@dataclass(frozen=True, slots=True)
class Context:
    """What the findings are about: data, method, settings, and the digests of what was looked at."""

    dataset: str
    method: str
    basis: Basis
    records: Counts
    persons: Counts
    split: str  # how training and test records were told apart
    attack_settings: Mapping[str, Mapping[str, Scalar | tuple[Scalar, ...]]]
    depth: Depth
    thresholds: Mapping[str, Limit]
    classes: Mapping[str, tuple[str, ...]]  # as they may be shown
    confusion: Mapping[str, tuple[tuple[float, ...], ...]] | None  # probability that class i (row) is replaced by class j
    forbid: Forbidden | None  # whom records could not meet; None without a pool
    pass_through: tuple[str, ...]  # columns that left beside the payload and are the attacker's side information
    stamp: str | None  # what the release says about itself, such as "not for release"
    model_digest: str | None
    pool_digest: str | None
    protected_digest: str | None  # None where nothing was released yet
    original_digest: str | None
    valid_days: int
    schema_version: Literal[2] = SCHEMA_VERSION


def document(findings: AuditFindings, context: Context) -> dict[str, Any]:
    """What is written as audit.json: context and findings side by side, floats rounded."""
    return {
        "schema_version": context.schema_version,
        **{name: rounded(_plain(getattr(context, name))) for name in _fields(Context)},
        **{name: rounded(_plain(getattr(findings, name))) for name in _fields(AuditFindings)},
    }


def amended(audit: Mapping[str, Any], **changes: Any) -> dict[str, Any]:
    """An audit.json with some of its fields told anew."""
    return {**audit, **{name: rounded(_plain(value)) for name, value in changes.items()}}


def limits_of(thresholds: Thresholds, basis: Basis) -> dict[str, Limit]:
    """The limits that an audit of labelled records, or of others, goes by."""
    names = [name for name in _fields(Thresholds) if (name in DRIFTS) == (basis == "unlabelled")]
    return {name: getattr(thresholds, name) for name in names}


def context_of(
    subject: Subject,
    attacks: tuple[NamedAttack, ...],
    thresholds: Thresholds,
    depth: Depth,
    *,
    dataset: str,
    method: str,
    protected_digest: str | None,
    valid_days: int = 365,
) -> Context:
    """What every audit reports beside its findings; classes are numbered, not named."""
    parts = (subject.train, subject.test)
    return Context(
        dataset=dataset,
        method=method,
        basis="labelled",
        records=Counts(*(len(part) for part in parts)),
        persons=Counts(*(len(np.unique(part.persons)) for part in parts)),
        split="as the data set's",
        attack_settings={named.name: dataclasses.asdict(named.config) for named in attacks},
        depth=depth,
        thresholds=limits_of(thresholds, "labelled"),
        classes={a.name: tuple(str(k + 1) for k in range(a.n_classes)) for a in subject.attributes},
        confusion=None,
        forbid=None,
        pass_through=tuple(column.attribute.name for column in subject.columns),
        stamp=None,
        model_digest=None,
        pool_digest=None,
        protected_digest=protected_digest,
        original_digest=None,
        valid_days=valid_days,
    )


def figures_of(findings: AuditFindings) -> dict[str, Any]:
    """The main figures: verdict, mNAG, and for every attribute NAG and accuracies."""
    return {"verdict": findings.verdict, "mnag": findings.mnag.value} | {
        row.name: {
            "nag": row.nag.value,
            "nag_high": row.nag.high,
            "accuracy_protected": row.protected.value,
            "accuracy_unprotected": row.unprotected.value,
            "nag_exact_rule": None if row.exact is None else row.exact.rule.value,
            "information_excess": None if row.exact is None else row.exact.information.excess,
        }
        for row in findings.attributes
    }


def schema() -> dict[str, Any]:
    """The JSON Schema of audit.json; nothing that it does not name may be in one."""
    told = TypeAdapter(_document_type()).json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_closed(told)}


def read_audit(path: Path) -> dict[str, Any]:
    """The audit in a file; another version, and JSON that is no audit, are DataErrors that name it."""
    found = read_json(path)
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version != SCHEMA_VERSION:
        kind = "no audit" if version is None else f"version {version}"
        raise DataError(f"{path}: expected an audit of version {SCHEMA_VERSION}, found {kind}; run audit again")
    try:
        TypeAdapter(_document_type()).validate_python(found)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise DataError(f"{path}: is no audit: {place}: {first['msg'].lower()}; run audit again") from None
    told: dict[str, Any] = found
    return told


def _document_type() -> type:
    fields = [(name, hint) for part in (Context, AuditFindings) for name, hint in get_type_hints(part).items()]
    told = {"__doc__": "An audit. Fractions are between 0 and 1, information is in nats, intervals are 95 %."}
    return dataclasses.make_dataclass("Audit", fields, namespace=told, frozen=True, slots=True)


def _fields(part: type) -> list[str]:
    return [field.name for field in dataclasses.fields(part)]


def _plain(value: Any) -> Any:
    """`value` in what JSON knows; unlike `dataclasses.asdict` it takes any Mapping."""
    if dataclasses.is_dataclass(value):
        return {field.name: _plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value


def _closed(told: Any) -> Any:
    """The schema with every object holding exactly its properties, whatever defaults they have in Python."""
    if isinstance(told, list):
        return [_closed(item) for item in told]
    if not isinstance(told, dict):
        return told
    closed = {key: _closed(item) for key, item in told.items() if key != "default"}
    if isinstance(told.get("properties"), dict) and told.get("type") == "object":
        closed |= {"required": list(told["properties"]), "additionalProperties": False}
    return closed
