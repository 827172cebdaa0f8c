"""Puts the raw data of a data set under DVC: versioned, but pushed to the remote only on request."""

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
    """Copies a folder, or downloads a URL, to the data set's raw folder and adds it to DVC; returns the .dvc file.

    Raises:
        ConfigError: the data set has no section in params.yaml, or is generated here.
        DataError: `source` does not exist, or the raw folder does already.
        StageFailed: DVC failed.
    """
    if name not in config.dataset or is_generated(name):
        known = ", ".join(known for known in config.dataset if not is_generated(known))
        raise ConfigError(f"data set {name!r}: expected one with a section in params.yaml that is not generated here: {known}")
    target = Layout(Path("data")).artefact("raw", RunKey(name))
    if not config.dataset[name].needs_raw:
        raise ConfigError(f"dataset.{name}.source: expected none in a versioned run, which reads {target}; remove it first")
    remote = "://" in source
    if source.startswith(FILES_ONLY):
        raise ConfigError(
            f"{source}: expected a folder, found a URL from which DVC imports single files only; download the folder, then add it"
        )
    given = Path(source).expanduser().resolve()
    in_place = not remote and given == (project / target).resolve()
    if not remote and not given.is_dir():
        raise DataError(f"{source}: expected a folder with the published files, or a URL")
    if (project / target).exists() and not in_place:
        raise DataError(f"{target}: exists already; remove it (and {target}.dvc), or use `dvc update` for data from a URL")
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
    run_dvc(project, "commit", "--force", f"{target}.dvc", label="dvc commit")  # the edit changed the file's checksum
    return pointer
