"""The command `tune`. `--help` imports this, so heavy libraries stay inside functions."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.box import SIMPLE_HEAD
from rich.table import Table

from flows.cli import options
from flows.cli.console import out, show
from pass_core.errors import EXIT_FAILED_AUDIT, ConfigError

if TYPE_CHECKING:
    from tasks.tuning.result import Tuned

PREPARATION = ("generate", "ingest", "validate", "extract")  # the steps before a pool is drawn
Methods = Annotated[list[str] | None, typer.Option("--method", help="Method to try; repeatable. Default: all that can be tuned.")]
Minutes = Annotated[float, typer.Option("--minutes", help="Budget of the search, without reading and extracting.", min=0.1)]
Root = Annotated[Path, typer.Option("--root", help="Scratch folder; the result is in ROOT/tuned.", show_default=False)]


@options.taking(
    {"dataset": options.ONE_RELEASE["dataset"]}, {k: v for k, v in options.RUN.items() if k not in ("engine", "root")}
)
def tune(root: Root, minutes: Minutes = 20.0, method: Methods = None, **given: Any) -> None:
    """Find the setting that keeps most and would pass the audit."""
    dataset, params, quiet = given["dataset"], given["params"], given["quiet"]
    settings = options.overrides(given)
    config, engine = options.check_before_run(
        params, [dataset], None, engine="in-process", root=root, settings=settings, steps=PREPARATION
    )
    from tasks.config import parse_overrides
    from tasks.registry import STEPS, is_generated
    from tasks.running.layout import layout_at
    from tasks.running.numerics import fixed_numerics
    from tasks.running.progress import configure_logging, reporter
    from tasks.running.tracking import track_pipeline
    from tasks.tuning.candidates import tunable
    from tasks.tuning.result import conclude
    from tasks.tuning.search import Search
    from tasks.tuning.study import read_study

    methods, layout = tunable(method or ()), layout_at(root, raw_data_from_environment=not is_generated(dataset))
    overrides, base = parse_overrides(settings), params.resolve().parent
    if fixed := [name for name in overrides if name in ("methods", "datasets", "dataset", "method")]:
        raise ConfigError(f"{fixed[0]}: expected single settings to start from, found a whole section; name its parts")
    configure_logging(quiet)
    with track_pipeline(f"tune {dataset}", config.tracking, base), reporter(quiet) as progress:
        for name in PREPARATION:
            if name != "generate" or is_generated(dataset):
                engine.run(STEPS[name], STEPS[name].key(dataset, None), progress)
        with fixed_numerics(config.compute.threads):
            study = read_study(
                layout.artefact("features", STEPS["extract"].key(dataset, None)), config.dataset[dataset], config.seed
            )
            search = Search(
                study=study, params=params, overrides=overrides, config=config, dataset=dataset, methods=methods,
                store=root / "tuned" / "points" / dataset, minutes=minutes, base=base, progress=progress,
            )  # fmt: skip
            tuned = conclude(search, search.run(), root / "tuned")
    _show(tuned, dataset, root)
    if tuned.chosen is None or not tuned.chosen.passes:
        raise typer.Exit(EXIT_FAILED_AUDIT)


def _show(tuned: "Tuned", dataset: str, root: Path) -> None:
    from tasks.reports.wording import of_a_limit

    table = Table(title=f"{dataset}: settings judged with all analyses", title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for name in ("setting", "verdict", "mNAG", "share of a limit"):
        table.add_column(name, justify="left" if name in ("setting", "verdict") else "right")
    for point in tuned.points:
        if point.judged:
            one, verdict = (
                point.first,
                "pass" if point.passes else "hides" if point.hides else "fail" if point.broken else "undecided",
            )
            table.add_row(point.candidate.words(), verdict, f"{one.mnag:.1%}", of_a_limit(one.pressure))
    show()
    out.print(table)
    for reason in tuned.reasons:
        show(reason)
    if tuned.causes:
        show("\nNo setting passes. What limits it, and the change that would help:")
        for cause in tuned.causes:
            show(f"  {cause.words()}")
    show(f"\nFrontier: {tuned.page}\n          {tuned.picture}")
    if tuned.settings is not None:
        show(f"Setting:  {tuned.settings}")
        show(f"Next:     pass-pipeline run --dataset {dataset} --root {root} --settings {tuned.settings}")
