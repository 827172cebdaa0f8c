"""python -m tasks STEP --dataset D [--method M]: runs one step, from files to files. DVC's stages call it."""

import argparse
import os
import sys
from pathlib import Path

import tasks.passive_waiting  # noqa: F401 - before anything that imports torch
from pass_core.errors import ConfigError, PassError
from tasks.config import load_config, parse_overrides
from tasks.registry import STEPS, find_step, is_generated
from tasks.running.layout import layout_at, owned_by_dvc
from tasks.running.progress import configure_logging, reporter
from tasks.running.step import run_step


def main() -> int:
    """Runs the step named on the command line; 0 when it succeeded, or the exit code of a one-line error."""
    parser = argparse.ArgumentParser(prog="python -m tasks", description=__doc__)
    parser.add_argument("step", help=f"one of {', '.join(STEPS)}")
    parser.add_argument("--dataset", required=True)
    parser.add_argument("--method")
    parser.add_argument("--root", type=Path, default=Path("data"), help="folder of the artefacts (default: data)")
    parser.add_argument("--params", type=Path, default=Path("params.yaml"))
    parser.add_argument("--set", action="append", default=[], metavar="PATH=VALUE", help="override a parameter: train.epochs=5")
    parser.add_argument("--quiet", action="store_true")
    arguments = parser.parse_args()
    configure_logging(arguments.quiet)
    try:
        step = find_step(arguments.step)
        if step.per_method and arguments.method is None:
            parser.error(f"step {step.name} needs --method")
        project = arguments.params.resolve().parent
        versioned = owned_by_dvc(arguments.root.resolve(), project)
        if arguments.set and versioned:
            raise ConfigError(f"--set: {arguments.root} belongs to DVC, which reads params.yaml only; give another --root")
        config = load_config(arguments.params, parse_overrides(arguments.set))
        config = config.with_names((arguments.dataset,), (arguments.method,) if arguments.method else config.methods)
        if versioned and not config.dataset[arguments.dataset].needs_raw:
            raise ConfigError(
                f"dataset.{arguments.dataset}.source: a versioned run reads data/raw/{arguments.dataset}, which DVC owns "
                f"(`pass-pipeline datasets add`); leave source empty, or run with --root"
            )
        key = step.key(arguments.dataset, arguments.method)
        # A versioned run reads DVC's raw data, whatever PASS_RAW_DATA names: dvc.lock would be wrong otherwise.
        inside = is_generated(arguments.dataset) or versioned is not None
        layout = layout_at(arguments.root, raw_data_from_environment=not inside)
        engine = "dvc" if "DVC_STAGE" in os.environ else "step"
        with reporter(arguments.quiet) as progress:
            run_step(step, key, config, layout, engine, progress=progress, store=project)
    except PassError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 (this is the command line)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
