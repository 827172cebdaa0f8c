"""Raw data of a data set, put under DVC: versioned like everything else, pushed only when asked."""

from pathlib import Path

import yaml

from flows.dvc import run_dvc
from pass_core.errors import ConfigError, DataError, StageFailed
from tasks.config import Config
from tasks.registry import is_generated
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey

FILES_ONLY = ("http://", "https://", "file://")


def add_raw_data(project: Path, config: Config, name: str, source: str, push: bool) -> Path:
    """Copies a folder, or downloads a URL, to the data set's raw folder and gives it to DVC; the .dvc file it leaves.

    Raises:
        ConfigError: the data set has no section in params.yaml, or is generated here.
        DataError: there is nothing at `source`, or the raw folder is taken.
        StageFailed: DVC could not do it.
    """
    if name not in config.dataset or is_generated(name):
        known = ", ".join(known for known in config.dataset if not is_generated(known))
        raise ConfigError(f"data set {name!r}: expected one with a section in params.yaml that is not generated here: {known}")
    target = Layout(Path("data")).artefact("raw", RunKey(name))
    if not config.dataset[name].needs_raw:
        raise ConfigError(f"dataset.{name}.source: empty it first: a versioned run reads {target}, which DVC has")
    remote = "://" in source
    if source.startswith(FILES_ONLY):
        raise ConfigError(f"{source}: DVC imports single files from there: download the folder, then add it")
    given = Path(source).expanduser().resolve()
    in_place = not remote and given == (project / target).resolve()
    if not remote and not given.is_dir():
        raise DataError(f"{source}: expected a folder with the published files, or a URL")
    if (project / target).exists() and not in_place:
        raise DataError(f"{target}: is there already; remove it (and {target}.dvc), or use `dvc update` for data from a URL")
    (project / target).parent.mkdir(parents=True, exist_ok=True)
    if remote:
        arguments = ["import-url", source, str(target)]
    else:
        arguments = ["add", str(target)] if in_place else ["add", str(given), "--out", str(target)]
    code, lines = run_dvc(project, *arguments, label=f"dvc {arguments[0]}")
    if code != 0:
        raise StageFailed(f"dvc {arguments[0]} failed: {lines[-1] if lines else 'no output'}")
    pointer = project / f"{target}.dvc"
    content = yaml.safe_load(pointer.read_text())
    for output in content["outs"]:
        output["push"] = push
    pointer.write_text(yaml.safe_dump(content, sort_keys=False))
    run_dvc(project, "commit", "--force", f"{target}.dvc", label="dvc commit")  # its own checksum, after the edit
    return pointer
