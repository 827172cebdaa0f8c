"""The audit as a Prefect flow of its own, so that it can be repeated on a schedule: champions' audits grow old."""

from pathlib import Path

from flows.pipeline import prefect_runner, show_audit, shown_progress  # sets Prefect's environment before Prefect is imported

from prefect import flow, runtime

from flows.engines import make_engine
from pass_core.errors import AuditFailed
from tasks.config import load_config, parse_overrides
from tasks.running.layout import layout_at
from tasks.reports.publish import publish_report
from tasks.registry import find_step, is_generated
from tasks.running.step_io import RunKey
from tasks.storage.files import read_json


def _run_name() -> str:
    given = runtime.flow_run.parameters
    return f"{given['dataset']} · {given['method']}"


@flow(name="pass-audit", flow_run_name=_run_name, persist_result=False, validate_parameters=True)
def audit(
    dataset: str,
    method: str = "pass_substitution",
    root: str = "data",
    params: str = "params.yaml",
    settings: list[str] | None = None,
) -> str:
    """Attacks what was released, writes the report, and fails when the verdict is fail.

    Args:
        dataset: the section of params.yaml whose release is attacked.
        method: the method whose release is attacked.
        root: where model, pool and release lie; `data` is DVC's.
        params: the parameter file.
        settings: replacements of parameters, path=value each.
    """
    path = Path(params).resolve()
    config = load_config(path, parse_overrides(settings or [])).with_names((dataset,), (method,))
    under_dvc = Path(root).resolve() == path.parent / "data"
    engine = make_engine(
        "dvc" if under_dvc else "in-process", config, None if under_dvc else Path(root), path.parent, overridden=bool(settings)
    )
    run, key = prefect_runner(engine, shown_progress.get()), RunKey(dataset, method)
    for name in ("audit", "report"):
        run(find_step(name), key)
    layout = layout_at(engine.root, raw_data_from_environment=not is_generated(dataset))
    report = publish_report(layout, key)
    show_audit(key, layout.artefact("audit", key), report)
    document = read_json(layout.artefact("audit", key))
    if document["verdict"] != "pass":
        raise AuditFailed(f"{key}: the audit's verdict is fail: {'; '.join(document['reasons'])}")
    return str(document["verdict"])
