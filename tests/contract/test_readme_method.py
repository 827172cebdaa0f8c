"""The documented example of a method is complete: it is found, fitted, released and attacked like any other."""

import dataclasses
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import pass_core.methods
from pass_core import discovery
from pass_core.data import Records
from pass_core.methods.base import ReleaseContext
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig
from tasks.config import load_config
from tasks.running.layout import Layout
from tasks.running.step_io import RunKey
from tests.conftest import PROJECT, run_all, write_params

NAME = "gaussian_noise"


@pytest.fixture
def discovered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The documented file, in a folder where methods are looked for."""
    pages = [page.read_text() for page in (PROJECT / "docs" / "extending.md", PROJECT / "README.md") if page.exists()]
    example = rf"`pass_core/methods/{NAME}\.py`.*?```python\n(.*?)```"
    found = next((match for page in pages if (match := re.search(example, page, re.DOTALL))), None)
    assert found
    (tmp_path / f"{NAME}.py").write_text(found[1])
    monkeypatch.setattr(pass_core.methods, "__path__", [*pass_core.methods.__path__, str(tmp_path)])
    monkeypatch.setitem(sys.modules, f"pass_core.methods.{NAME}", None)  # taken out again afterwards, whatever is imported
    del sys.modules[f"pass_core.methods.{NAME}"]


@pytest.mark.usefixtures("discovered")
def test_readme_method_fits_transforms_and_is_restored() -> None:
    assert NAME in discovery.available(pass_core.methods)
    method = discovery.load(pass_core.methods, NAME).METHOD
    assert dataclasses.is_dataclass(method.config_type)
    x = stream(1, "x").normal(0, [1, 3], (500, 2)).astype(np.float32)
    data = Records(x, {})
    setting = ReleaseContext((), data, torch.device("cpu"))
    fitted = method.fit(
        data,
        context=setting,
        config=method.config_type(2.0),
        training=TrainConfig(1, 10),
        rng=stream(1, "fit"),
        run=TrainingContext(),
    )
    released = fitted.transform(x, stream(2, "t"))
    assert released.dtype == np.float32
    assert (released - x).std(axis=0) == pytest.approx([2, 6], rel=0.1)
    restored = method.from_state_dict(fitted.state_dict(), setting, method.config_type(2.0))
    assert (restored.transform(x, stream(2, "t")) == released).all()


@pytest.mark.usefixtures("discovered")
def test_readme_method_goes_through_the_pipeline_and_its_audit(tmp_path: Path) -> None:
    params = write_params(tmp_path, methods=[NAME], method={NAME: {"deviations": 0.1}})
    run_all(load_config(params), tmp_path / "root", NAME, upto="audit")
    audit = json.loads(Layout(tmp_path / "root").artefact("audit", RunKey("synthetic_motion", NAME)).read_text())
    assert audit["verdict"] == "fail"  # a tenth of a deviation hides nothing, and the audit says so
