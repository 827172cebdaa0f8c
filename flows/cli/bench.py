"""pass-pipeline bench: the paper's tables on the data at hand."""

import os
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pass_core.errors import StageFailed
from tasks.config import load_config, parse_overrides
from tasks.paper_tables.aggregate import fill
from tasks.paper_tables.definition import EffortName, Table, load_table, table_names
from tasks.paper_tables.features import prepare_features
from tasks.paper_tables.plan import Plan, make_plan
from tasks.paper_tables.render import write_table
from tasks.paper_tables.run import Bench, compute_plans
from tasks.paper_tables.store import Store
from tasks.running.progress import configure_logging, reporter

out = Console(soft_wrap=True, highlight=False)


def bench(
    tables: Annotated[
        list[str] | None, typer.Argument(metavar="[TABLE]...", help="T1 to T13, demo, or a YAML file; none lists them.")
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Fewer epochs, one seed: what two cores do within the hour.")] = False,
    seeds: Annotated[int | None, typer.Option(min=1, help="How many, from params.yaml's seed on.")] = None,
    workers: Annotated[int, typer.Option(min=1, help="Processes, of one thread each.")] = os.cpu_count() or 1,
    root: Annotated[Path, typer.Option(help="Where features and finished cells are kept.")] = Path("data/bench"),
    output: Annotated[Path | None, typer.Option("--out", help="Where tables are written. Default: tables/ in the root.")] = None,
    params: Annotated[Path, typer.Option(help="Parameter file; its folder is the project's.")] = Path("params.yaml"),
    settings: Annotated[list[str] | None, typer.Option("--set", help="Replace a parameter of params.yaml.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress, results only.")] = False,
) -> None:
    """Reproduce tables of the paper; finished cells are kept, so the same command goes on where it was stopped."""
    if not tables:
        for name in table_names():
            out.print(f"[bold]{name}[/]  {load_table(name).title}")
        return
    configure_logging(quiet)
    chosen = {Path(name).stem: load_table(name) for name in tables}
    config = load_config(params, parse_overrides(settings or []))
    project = params.resolve().parent
    effort: EffortName = "quick" if quick else "full"
    with reporter(quiet) as progress:
        plans: list[Plan] = []
        for dataset, group in _by_dataset(chosen).items():
            named = tuple(
                sorted({name for table in group.values() for row in table.rows for name in table.roles_of(row).names()})
            )
            features = prepare_features(dataset, named, config, root=root, project=project, progress=progress)
            plans += [
                make_plan(name, table, effort, features, first_seed=config.seed, seeds=seeds) for name, table in group.items()
            ]
        store = Store(root)
        compute_plans(plans, Bench(store=store, workers=workers, tracking=config.tracking, project=project, progress=progress))
    for plan in plans:
        filled = fill(plan, store)
        paths = write_table(filled, output or root / "tables")
        out.print(paths["md"].read_text(), markup=False)
        for path in paths.values():
            out.print(str(path))
        if all(row.problem for row in filled.rows):
            raise StageFailed(f"table {plan.name}: no row could be computed: {filled.rows[0].problem}")


def _by_dataset(tables: dict[str, Table]) -> dict[str, dict[str, Table]]:
    groups: dict[str, dict[str, Table]] = {}
    for name, table in tables.items():
        groups.setdefault(table.the_setup().dataset, {})[name] = table
    return groups
