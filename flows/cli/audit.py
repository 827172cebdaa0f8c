"""The commands about audits: audit release, pair and unlabelled; report; compare. Without a pass they end with exit code 3."""

import dataclasses
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flows.cli.console import out, show
from flows.cli.options import ONE_RELEASE, PARAMS, RUN, Params, Quiet, Settings, read_config, run_steps, taking
from pass_core.errors import EXIT_FAILED_AUDIT, ConfigError, DataError

if TYPE_CHECKING:
    from pass_core.auditing.findings import Check

NEVER = "never"
# What to try when a check fails, and with which method: any, one by name, or (not) transport. docs/methods.md has the reasons.
MORE_DONORS = "--set pool.donors=4096: offers more donors of every class, if there are as many training records"
ADVICE = {
    "private_nag_at_most": (
        ("not transport", "--method transport_substitution: hides the private attributes as well as the donors allow"),
        ("pass_substitution", "--set train.epochs=40: trains for longer"),
        ("pass_substitution", "--set method.pass_substitution.preset=improved: also learns from transport"),
        ("transport_substitution", MORE_DONORS),
        ("any", "--set release.{dataset}=[]: publishes no column beside the payload, if a reason names a column"),
    ),
    "information_excess_at_most": (
        ("not transport", "--method transport_substitution: leaks the least information"),
        ("transport_substitution", "--set method.transport_substitution.epsilon=0.1: mixes records over more donors"),
        ("pass_substitution", "--set method.pass_substitution.joint_private=true: also hides combinations of private attributes"),
    ),
    "useful_nag_at_least": (
        ("any", MORE_DONORS),
        ("not transport", "--set train.epochs=40: trains for longer"),
        ("transport_substitution", "--set method.transport_substitution.epsilon=0.01: keeps more of each record"),
    ),
    "membership_auc_at_most": (
        ("any", "--set pool.forbid=self: no training record is released as itself"),
        ("not transport", "--set train.epochs=10: fits the training records less closely"),
    ),
    "reidentified_at_most": (("any", "--set pool.forbid=same_person: no record is released as one of the same person"),),
    "copied_at_most": (("any", "--set pool.forbid=self: no record is released as itself"),),
    "singled_out_at_most": (("any", "--set pool.forbid=same_person: no record is released as one of the same person"),),
    "linked_auc_at_most": (("any", "--set pool.forbid=same_person: no record is released as one of the same person"),),
    "replayed_seeds_at_most": (("any", "release with a secret draw key: pass-pipeline lake key new FILE, then lake protect"),),
}

audit_app = typer.Typer(no_args_is_help=True, help="Attack a release and judge it by the thresholds of params.yaml.")
FailOn = Annotated[
    str | None, typer.Option("--fail-on", help="End with code 3 for these checks only: NAME,NAME or never. Default: any.")
]
Annex = Literal["dpia"]
Out = Annotated[Path | None, typer.Option("--out", help="Folder for audit.json and report.html. Default: NAME-audit.")]


@audit_app.command()
@taking(ONE_RELEASE, RUN)
def release(fail_on: FailOn = None, **given: Any) -> None:
    """Audit a release of this pipeline."""
    judged, names = judged_checks(fail_on), (given["dataset"], given["method"])
    _finish(_publish(run_steps("audit", "report", **given), *names), "/".join(names), judged, advise=True)


@audit_app.command()
def pair(
    *,
    original: Annotated[Path, typer.Option(help="Table of originals: Parquet, CSV or Delta.")],
    protected: Annotated[list[Path], typer.Option(help="Table released for them; several tables are several draws.")],
    private: Annotated[list[str], typer.Option(help="Columns of the originals to hide: a,b or repeated.")],
    useful: Annotated[list[str], typer.Option(help="Columns to keep.")],
    general: Annotated[list[str] | None, typer.Option(help="Columns to measure without a verdict.")] = None,
    payload: Annotated[
        list[str] | None, typer.Option(help="List column, or number columns such as f_*, of both tables. Default: payload.")
    ] = None,
    shape: Annotated[str | None, typer.Option(help="Shape of a payload: 2,128. Default: its length.")] = None,
    key: Annotated[str | None, typer.Option(help="Column that joins both tables. Default: row by row.")] = None,
    person: Annotated[str | None, typer.Option(help="Column of the person a record is about.")] = None,
    block: Annotated[str | None, typer.Option(help="Column of records that depend on each other.")] = None,
    split: Annotated[str | None, typer.Option(help="Column with train or test. Default: split here.")] = None,
    params: Params = PARAMS,
    settings: Settings = None,
    fail_on: FailOn = None,
    out_folder: Out = None,
    quiet: Quiet = False,
) -> None:
    """Audit any table of originals with its protected table."""
    from tasks.audits.pair import audit_pair
    from tasks.lakes.pair import PairColumns
    from tasks.running.numerics import fixed_numerics
    from tasks.running.progress import configure_logging, reporter
    from tasks.sections.dataset import Roles
    from tasks.storage.parquet import PAYLOAD

    judged, started = judged_checks(fail_on), time.monotonic()
    configure_logging(quiet)
    columns = PairColumns(
        roles=Roles(private=_names(private), useful=_names(useful), general=_names(general)),
        payload=_names(payload) or (PAYLOAD,),
        shape=_shape(shape),
        key=key,
        person=person,
        block=block,
        split=split,
    )
    config = read_config(params, settings)
    with reporter(quiet) as progress, fixed_numerics(config.compute.threads):
        document = audit_pair(
            original, protected, columns, config=config.audit, recipient=config.attacker, seed=config.seed, progress=progress
        )
    _write(document, out_folder or Path(f"{protected[0].stem}-audit"), started, judged)


@audit_app.command()
@taking(ONE_RELEASE)
def unlabelled(
    table: Annotated[Path, typer.Argument(help="Table of records or features without labels.")],
    *,
    root: Annotated[Path | None, typer.Option("--root", help="Folder of the labelled audit. Default: data.")] = None,
    params: Params = PARAMS,
    settings: Settings = None,
    fail_on: FailOn = None,
    out_folder: Out = None,
    quiet: Quiet = False,
    **given: Any,
) -> None:
    """Judge records without labels by the labelled audit and by drift."""
    from flows.engines import layout_of
    from tasks.audits.unlabelled import unlabelled_document
    from tasks.running.numerics import fixed_numerics
    from tasks.running.progress import configure_logging
    from tasks.running.step_io import RunKey

    judged, started, key = judged_checks(fail_on), time.monotonic(), RunKey(**given)
    configure_logging(quiet)
    config = read_config(params, settings).with_names((key.dataset,), (str(key.method),))
    layout = layout_of(root or params.resolve().parent / "data", key.dataset)
    with fixed_numerics(config.compute.threads):
        document = unlabelled_document(table, key, config, layout)
    _write(document, out_folder or Path(f"{table.stem}-audit"), started, judged)


@taking(ONE_RELEASE)
def report(
    root: Annotated[Path, typer.Option("--root", help="Folder of the run's artefacts.")] = Path("data"),
    annex: Annotated[Annex | None, typer.Option("--annex", help="Also write an annex to an impact assessment: dpia.")] = None,
    **given: Any,
) -> None:
    """Write the report of an audit and print its path."""
    path = _publish(root, **given, annex=annex is not None)
    show(path)
    for written in sorted(path.parent.glob(f"annex-{annex}.*")) if annex else ():
        show(written)


def compare(
    audits: Annotated[list[Path], typer.Argument(help="audit.json files, or folders that hold one.")],
    page: Annotated[Path, typer.Option("--out", help="Page to write.")] = Path("compare.html"),
) -> None:
    """Compare several audits on one page."""
    from tasks.reports.compare import write_comparison

    found = [path / "audit.json" if path.is_dir() else path for path in audits]
    missing = [str(path) for path in found if not path.is_file()]
    if missing:
        raise DataError(f"compare: expected audit.json, or a folder that holds one; not found: {', '.join(missing)}")
    write_comparison(found, page)
    show(page)


def judged_checks(fail_on: str | None) -> frozenset[str] | None:
    """The checks that decide the exit code; None: all."""
    if fail_on is None:
        return None
    from pass_core.auditing.analyses.base import every_analysis
    from pass_core.auditing.thresholds import Thresholds
    from tasks.audits.unlabelled import CHECKS

    allowed = [field.name for field in dataclasses.fields(Thresholds) if field.name != "significance"] + list(CHECKS)
    allowed += [name for analysis in every_analysis() for name in analysis.demands if name not in allowed]
    names = [name.strip() for name in fail_on.split(",") if name.strip()]
    unknown = [name for name in names if name not in allowed]
    if names == [NEVER]:
        return frozenset()
    if unknown or not names:
        raise ConfigError(
            f"--fail-on: unknown check {', '.join(map(repr, unknown)) or 'name'}: expected never, or some of {', '.join(allowed)}"
        )
    return frozenset(names)


def show_audit(folder: Path, title: str, *, advise: bool = False) -> set[str]:
    """Prints verdict, attributes, reasons and, if wanted, what to try next; returns the checks that keep it from a pass."""
    from flows.summary import audit_rows, headline
    from pass_core.storage.audits import read_audit

    audit = read_audit(folder / "audit.json")
    table = Table(title=f"{title}: {headline(audit)}", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    rows = audit_rows(folder / "audit.json")
    for name in rows[0] if rows else ():
        table.add_column(name, justify="left" if name in ("attribute", "role", "verdict") else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row.values())
    show()
    if audit.basis == "unlabelled":
        show("Private attributes were not attacked on these records, which carry no labels. The labelled audit found:")
    if audit.recipient is not None:
        show(audit.recipient.words())
    if audit.effort == "quick":
        show(audit.not_promised[0])
    out.print(table)
    for reason in audit.reasons:
        show(f"  {reason}")
    if any(row.exact for row in audit.attributes):
        show("exact: NAG of the best possible attacker: rule learnt on train … plug-in on test (biased upwards)")
    for line in next_steps(audit.dataset, audit.method, audit.checks) if advise else ():
        show(line)
    return {check.name for check in audit.checks if _stops(check)}


def _stops(check: "Check") -> bool:
    """Whether a check keeps an audit from its pass: it is broken, or a pass needs it and it cannot be decided."""
    return check.failed or (check.required and not check.passed)


def next_steps(dataset: str, method: str, checks: "Sequence[Check]") -> list[str]:
    """Lines about what to try after an audit that did not pass: settings that help against the checks that stopped it."""
    from pass_core.auditing.thresholds import Thresholds

    stopped = {name: [c for c in checks if c.name == name] for name in dict.fromkeys(c.name for c in checks if _stops(c))}
    applies = {"any", method} | (set() if method == "transport_substitution" else {"not transport"})
    lines = ["", "What to try next, as options of pass-pipeline run (docs/methods.md, docs/audit.md):"] if stopped else []
    limits = {field.name for field in dataclasses.fields(Thresholds)}
    for name, found in stopped.items():
        where = f"pass-pipeline config explain audit.thresholds.{name}" if name in limits else "the report"
        advice = [line for kind, line in ADVICE.get(name, (("any", f"{where} describes this check"),)) if kind in applies]
        if not any(check.failed for check in found):
            lines.append(f"  {name} cannot be decided on these records:")
            needed = max((check.needed or 0 for check in found), default=0)
            lines.append(f"    audit more records or persons{f': about {needed}' if needed else ''}, or lower the leak:")
        else:
            lines.append(f"  {name} failed:")
        lines += [f"    {line.format(dataset=dataset)}" for line in advice]
    return lines


def _publish(root: Path, dataset: str, method: str, *, annex: bool = False) -> Path:
    from flows.engines import layout_of
    from tasks.reports.publish import publish_report
    from tasks.running.step_io import RunKey

    return publish_report(layout_of(root, dataset), RunKey(dataset, method), annex=annex)


def _write(document: dict[str, Any], folder: Path, started: float, judged: frozenset[str] | None) -> None:
    from tasks.reports.publish import write_audit

    report_path = write_audit(folder, document, time.monotonic() - started)
    _finish(report_path, f"{document['dataset']}/{document['method']}", judged)


def _finish(report_path: Path, title: str, judged: frozenset[str] | None, *, advise: bool = False) -> None:
    """Prints the audit beside a report, and ends with code 3 when a check that counts is broken, or needed and undecided."""
    failed = show_audit(report_path.parent, title, advise=advise)
    show(f"Report: {report_path}")
    if failed if judged is None else failed & judged:
        raise typer.Exit(EXIT_FAILED_AUDIT)


def _names(given: list[str] | None) -> tuple[str, ...]:
    return tuple(name.strip() for text in given or () for name in text.split(",") if name.strip())


def _shape(given: str | None) -> tuple[int, ...]:
    parts = given.split(",") if given else []
    if not all(part.strip().isdigit() and int(part) > 0 for part in parts):
        raise ConfigError(f"--shape: expected whole numbers such as 2,128, found {given!r}")
    return tuple(map(int, parts))
