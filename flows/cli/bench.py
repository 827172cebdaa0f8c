"""pass-pipeline bench: the tables of the paper on the data at hand."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from flows.cli.console import out, show
from flows.cli.options import PARAMS, Params, Quiet, Settings, read_config
from pass_core.errors import StageFailed
from tasks.running.cores import usable_cores

if TYPE_CHECKING:
    from tasks.paper_tables.plan import Plan


def bench(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="T1 to T13, demo, or a YAML file; none lists them.")
    ] = None,
    *,
    quick: Annotated[bool, typer.Option("--quick", help="Use fewer epochs and one seed: an hour on two cores.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="Number of seeds, counted from params.yaml's.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Number of processes, with one thread each.")] = usable_cores(),
    root: Annotated[Path, typer.Option(help="Folder of features and finished cells.")] = Path("data/bench"),
    output: Annotated[Path | None, typer.Option("--out", help="Folder of the tables. Default: tables/ below --root.")] = None,
    params: Params = PARAMS,
    settings: Settings = None,
    quiet: Quiet = False,
) -> None:
    """Reproduce tables of the paper; run it again to resume."""
    from tasks.paper_tables.aggregate import fill
    from tasks.paper_tables.cells import Store
    from tasks.paper_tables.definition import load_table, table_names
    from tasks.paper_tables.features import prepare_features
    from tasks.paper_tables.plan import make_plan
    from tasks.paper_tables.render import write_table
    from tasks.paper_tables.run import Bench, compute_plans
    from tasks.running.progress import configure_logging, reporter

    if not tables:
        for name in table_names():
            out.print(f"[bold]{name}[/]  {load_table(name).title}", soft_wrap=True, highlight=False)
        return
    configure_logging(quiet)
    chosen = {Path(name).stem: load_table(name) for name in tables}
    config = read_config(params, settings)
    project = params.resolve().parent
    with reporter(quiet) as progress:
        plans: list[Plan] = []
        for dataset in dict.fromkeys(table.the_setup().dataset for table in chosen.values()):
            group = {name: table for name, table in chosen.items() if table.the_setup().dataset == dataset}
            named = {name for table in group.values() for row in table.rows for name in table.roles_of(row).roles()}
            features = prepare_features(dataset, tuple(sorted(named)), config, root=root, project=project, progress=progress)
            plans += [
                make_plan(name, table, "quick" if quick else "full", features, first_seed=config.seed, seeds=seeds)
                for name, table in group.items()
            ]
        store = Store(root)
        compute_plans(plans, Bench(store=store, workers=workers, tracking=config.tracking, project=project, progress=progress))
    for plan in plans:
        filled = fill(plan, store)
        paths = write_table(filled, output or root / "tables")
        show(paths["md"].read_text())
        for path in paths.values():
            show(path)
        if all(row.problem for row in filled.rows):
            raise StageFailed(f"table {plan.name}: no row could be computed: {filled.rows[0].problem}")
