"""The audit as a Prefect flow of its own, so that a schedule can repeat it: an audit's verdict expires."""

import shlex
from pathlib import Path

from prefect import flow, runtime

from flows.engines import make_engine
from flows.pipeline import prefect_runner, publish_audit
from flows.prefect_setup import shown_progress
from pass_core.errors import AuditFailed
from tasks.config import Config, load_config, parse_overrides
from tasks.production.notify import Notice, notify
from tasks.production.troubles import audit_trouble
from tasks.registry import find_step
from tasks.running.step_io import RunKey
from tasks.sections.running import NotifyConfig
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
    """Attacks a release, writes the report, and fails unless the verdict is pass.

    Args:
        dataset: the section of params.yaml whose release is attacked.
        method: the method whose release is attacked.
        root: folder of model, pool and release; DVC owns `data`.
        params: the parameter file.
        settings: parameters to override, path=value each.
    """
    notice, path = NotifyConfig(), Path(params).resolve()
    try:
        config = load_config(path, parse_overrides(settings or [])).with_names((dataset,), (method,))
        notice = config.notify
        return _audited(config, path, RunKey(dataset, method), root, overridden=bool(settings))
    except Exception as error:
        words = ["--dataset", dataset, "--method", method, "--root", str(Path(root).resolve()), "--params", str(path)]
        trouble = audit_trouble(error, shlex.join(["pass-pipeline", "audit", "release", *words]))
        notify(Notice(dataset, str(Path(root).resolve()), trouble), notice)
        raise


def _audited(config: Config, params: Path, key: RunKey, root: str, *, overridden: bool) -> str:
    under_dvc = Path(root).resolve() == params.parent / "data"
    chosen = None if under_dvc else Path(root).resolve()  # another model may become the champion meanwhile
    engine = make_engine("dvc" if under_dvc else "in-process", config, chosen, params.parent, overridden=overridden)
    run = prefect_runner(engine, shown_progress.get())
    for name in ("audit", "report"):
        run(find_step(name), key)
    document = read_json(publish_audit(engine, key).parent / "audit.json")
    if document["verdict"] != "pass":
        raise AuditFailed(f"{key}: the audit's verdict is {document['verdict']}: {'; '.join(document['reasons'])}")
    return str(document["verdict"])
