"""audit.json: the findings of an audit with their context; typed here, and published as a JSON Schema."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_type_hints

import numpy as np
from pydantic import TypeAdapter, ValidationError

from pass_core.auditing.analyses.base import every_analysis
from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.subject import Subject
from pass_core.auditing.thresholds import DRIFTS, Depth, Limit, Thresholds
from pass_core.auditing.trained_attacks import NamedAttack
from pass_core.channel.pool import Forbidden
from pass_core.errors import AuditError, DataError
from pass_core.storage.files import read_json, rounded
from pass_core.storage.older_audits import OLDER_VERSION, upgraded

SCHEMA_VERSION: Literal[3] = 3

Basis = Literal["labelled", "unlabelled"]  # whether the classes of the audited records themselves were known
Scalar = bool | int | float | str | None


@dataclass(frozen=True, slots=True)
class Counts:
    """A number per split."""

    train: int
    test: int


@dataclass(frozen=True, kw_only=True)
class Context:
    """What the findings are about: data, method, settings, and the digests of the audited files."""

    schema_version: Literal[3] = SCHEMA_VERSION
    dataset: str
    method: str
    basis: Basis
    records: Counts
    persons: Counts
    split: str  # how training and test records were separated
    attack_settings: Mapping[str, Mapping[str, Scalar | tuple[Scalar, ...]]]
    depth: Depth
    thresholds: Mapping[str, Limit]
    classes: Mapping[str, tuple[str, ...]]  # as they may be shown
    confusion: Mapping[str, tuple[tuple[float, ...], ...]] | None  # probability that class i (row) is replaced by class j
    recipient: Recipient | None  # the attacker who is judged; None for audits of a version that did not declare one
    forbid: Forbidden | None  # donors that a record must not get; None without a pool
    donors_only: Mapping[str, str] | None  # column -> class that every donor has, such as consent; None: not known
    pass_through: tuple[str, ...]  # columns published unchanged, which are side information for an attacker
    stamp: str | None  # what the release declares about itself, such as "not for release"
    model_digest: str | None
    pool_digest: str | None
    protected_digest: str | None  # None where nothing was released yet
    original_digest: str | None
    valid_days: int


@dataclass(frozen=True, kw_only=True)
class Audit(AuditFindings, Context):
    """An audit. Fractions are between 0 and 1, information is in nats, intervals are 95 %."""


def document(findings: AuditFindings, context: Context) -> dict[str, Any]:
    """What is written as audit.json: context and findings side by side, floats rounded."""
    return amended(Audit(**vars(context), **vars(findings)))


def amended(audit: Audit, **changes: Any) -> dict[str, Any]:
    """An audit as it is written, with some fields replaced; the findings of analyses are at the top level."""
    fields: dict[str, Any] = {}
    for name, value in {**_fields(audit), **changes}.items():
        added = value if name == "analyses" else {name: value}
        if taken := sorted(fields.keys() & added.keys()):
            raise AuditError(f"analyses: expected keys that audit.json does not use yet, found {', '.join(taken)}; rename them")
        fields |= added
    plain: dict[str, Any] = rounded(fields)
    return plain


def limits_of(thresholds: Thresholds, basis: Basis) -> dict[str, Limit]:
    """The limits that apply to an audit of labelled records, or of unlabelled ones."""
    return {name: limit for name, limit in _fields(thresholds).items() if (name in DRIFTS) == (basis == "unlabelled")}


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
    unset = ("confusion", "forbid", "donors_only", "stamp", "model_digest", "pool_digest", "original_digest")
    unknown: dict[str, Any] = dict.fromkeys(unset)
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
        recipient=subject.recipient,
        pass_through=tuple(column.attribute.name for column in subject.columns),
        protected_digest=protected_digest,
        valid_days=valid_days,
        **unknown,
    )


def figures_of(findings: AuditFindings) -> dict[str, Any]:
    """The main figures: verdict, privacy, utility, mNAG, and for every attribute NAG and accuracies."""
    said = {"verdict": findings.verdict, "privacy": findings.privacy, "utility": findings.utility}
    return (
        said
        | {"mnag": findings.mnag.value}
        | {
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
    )


def schema() -> dict[str, Any]:
    """The JSON Schema of audit.json; an audit holds exactly the properties that it names."""
    fields: list[tuple[str, Any]] = []
    for name, hint in get_type_hints(Audit).items():
        fields += [(a.key, a.finding | None) for a in every_analysis()] if name == "analyses" else [(name, hint)]
    flat = dataclasses.make_dataclass("Audit", fields, namespace={"__doc__": Audit.__doc__})
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **_closed(TypeAdapter(flat).json_schema())}


def read_audit(path: Path) -> Audit:
    """The audit in a file, also of the version before; JSON that is no audit is a DataError that names it."""
    found = read_json(path)
    version = found.get("schema_version") if isinstance(found, dict) else None
    if version not in (OLDER_VERSION, SCHEMA_VERSION):
        kind = "no audit" if version is None else f"version {version}"
        raise DataError(
            f"{path}: expected an audit of version {OLDER_VERSION} or {SCHEMA_VERSION}, found {kind}; run audit again"
        )
    place: list[str | int] = []
    try:
        found = found if version == SCHEMA_VERSION else upgraded(found)
        analyses: dict[str, Any] = {}
        for analysis in every_analysis():  # one that was added after this audit has found nothing in it
            place, value = [analysis.key], found.get(analysis.key)
            try:
                analyses[analysis.key] = None if value is None else TypeAdapter(analysis.finding).validate_python(value)
            except ValidationError:
                if version == SCHEMA_VERSION:
                    raise
                analyses[analysis.key] = None  # another form of finding: an older audit is read without it
        place = []
        audit: Audit = TypeAdapter(Audit).validate_python(found | {"analyses": analyses})
    except (KeyError, TypeError, AttributeError) as error:  # an older file that is not what it says
        raise DataError(f"{path}: is no audit: {error} is missing or of another kind; run audit again") from None
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, (*place, *first["loc"])))
        raise DataError(f"{path}: is no audit: {where}: {first['msg'].lower()}; run audit again") from None
    return audit


def _fields(value: Any) -> dict[str, Any]:
    return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}


def _closed(part: Any) -> Any:
    """The schema with every object holding exactly its properties, whatever defaults they have in Python."""
    if isinstance(part, list):
        return [_closed(item) for item in part]
    if not isinstance(part, dict):
        return part
    closed = {key: _closed(item) for key, item in part.items() if key != "default"}
    if isinstance(part.get("properties"), dict) and part.get("type") == "object":
        closed |= {"required": list(part["properties"]), "additionalProperties": False}
    return closed
