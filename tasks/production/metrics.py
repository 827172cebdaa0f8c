"""The figures of a target's last run as OpenMetrics text, for the textfile collector of Prometheus's node_exporter.

Labels are the data set, the target, kinds and names of attributes: no value of a record, and no partition.
"""

import contextlib
import datetime
import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args

from tasks.production.options import ProtectOptions, absolute
from tasks.production.run_log import RunOutcome
from tasks.production.troubles import Kind, public_place
from tasks.storage.files import write_atomically

FILE = "metrics.prom"  # in the private state folder
KINDS: tuple[Kind, ...] = ("draws", "audit", "drift", "paused", "quarantined", "failed")  # of troubles that end runs
FIGURES = {
    "duration_seconds": ("seconds", "Duration of the last run"),
    "partitions": ("partitions", "Partitions that the last run protected"),
    "rows": ("rows", "Rows that the last run protected"),
    "rows_per_second": ("rows_per_s", "Protected rows by the duration of the last run"),
    "bytes": ("bytes", "Bytes of the files that the last run protected"),
    "draws": ("draws", "Draws that the ledger did not hold before the last run"),
    "retries": ("retries", "Partitions that the last run tried again"),
}

logger = logging.getLogger(__name__)

Sample = tuple[Mapping[str, str], float]


def write_metrics(options: ProtectOptions, state: Path | None, entry: Mapping[str, Any]) -> None:
    """Writes what the log says about the end of a run; in the state folder by default. It never stops a run."""
    if options.metrics:
        path = Path(options.metrics) / f"pass_{options.lake_name}.prom"
    elif state is not None and state.is_dir():
        path = state / FILE
    else:  # a first run that was rejected: there is no state folder yet
        return
    labels = {"dataset": options.dataset, "target": public_place(absolute(options.target))}
    try:
        with write_atomically(path) as temporary:
            temporary.write_text(as_text(labels, entry))
            if options.metrics:
                temporary.chmod(0o644)  # the collector is another user
    except OSError as error:
        logger.warning("%s: the run's metrics could not be written (%s)", path.name, type(error).__name__)


def as_text(labels: Mapping[str, str], entry: Mapping[str, Any]) -> str:
    """Gauges of one run; the text is valid as OpenMetrics and in Prometheus's older format."""
    lines = []
    for name, (meaning, samples) in _families(entry).items():
        lines += [f"# TYPE pass_lake_{name} gauge", f"# HELP pass_lake_{name} {meaning}."]
        for own, value in samples:
            shown = ",".join(f'{key}="{_escaped(text)}"' for key, text in {**labels, **own}.items())
            lines.append(f"pass_lake_{name}{{{shown}}} {float(value)!r}")
    return "\n".join([*lines, "# EOF", ""])


def _families(entry: Mapping[str, Any]) -> dict[str, tuple[str, list[Sample]]]:
    """Name -> what it means, and its samples; families without a sample are left out."""
    ended, trouble = datetime.datetime.fromisoformat(entry["ended"]).timestamp(), (entry.get("trouble") or {}).get("kind")
    outcomes: list[Sample] = [({"outcome": one}, one == entry["outcome"]) for one in get_args(RunOutcome)]
    found: dict[str, tuple[str, list[Sample]]] = {
        "run_end_time_seconds": ("Unix time at which the last run ended", [({}, ended)]),
        "run_success": ("Whether the last run ended without trouble", [({}, trouble is None)]),
        "run_outcome": ("Outcome of the last run", outcomes),
        "run_trouble": ("Trouble that ended the last run", [({"kind": kind}, kind == trouble) for kind in KINDS]),
    }
    found |= {f"run_{name}": (meaning, [({}, entry[field])]) for name, (field, meaning) in FIGURES.items()}
    refused: list[Sample] = [({"kind": kind}, number) for kind, number in entry["refused"].items()]
    found["run_partitions_refused"] = ("Partitions that the last run could not protect, by the kind of error", refused)
    if "version" in entry:
        found["version"] = ("Version that the last run published", [({}, entry["version"])])
        found["published_rows"] = ("Rows of this version", [({}, entry["published_rows"])])
    if audit := entry["audit"]:
        found["audit_passed"] = ("Whether the audit of the last run passed", [({}, audit["verdict"] == "pass")])
        found["audit_records"] = ("Records that the audit of the last run judged", [({}, audit["records"])])
        found["audit_nag"] = ("NAG of an attribute, with its interval", list(_nags(audit["details"])))
        found["audit_check"] = (
            "Figures of the audit's checks of unlabelled records, with limits",
            list(_checks(audit["details"])),
        )
    return {name: family for name, family in found.items() if family[1]}


def _nags(details: Mapping[str, Any]) -> Iterator[Sample]:
    """Of the records' own audit, or of the champion's, which they rely on."""
    champion = details.get("champion", {})
    relied = {name: row["nag"] | {"role": row["role"], "nag": row["nag"]["value"]} for name, row in champion.items()}
    for basis, rows in (("labelled", details.get("attributes", {})), ("champion", relied)):
        for name, row in rows.items():
            for bound in ("nag", "low", "high"):
                with contextlib.suppress(TypeError, KeyError):  # not every figure has an interval
                    yield {"attribute": name, "role": row["role"], "basis": basis, "bound": bound}, float(row[bound])


def _checks(details: Mapping[str, Any]) -> Iterator[Sample]:
    for name, check in details.get("checks", {}).items():
        for which in ("found", "limit"):
            with contextlib.suppress(TypeError, KeyError):
                yield {"check": name, "figure": which}, float(check[which])


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
