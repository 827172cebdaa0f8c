"""The console over real lakes: what its pages say, and how a browser shows them."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from flows.cli.main import app
from pass_core.errors import AuditFailed
from tasks.config import load_config
from tasks.console.figures import short
from tasks.production.options import state_of
from tasks.production.run import Hooks, execute
from tasks.registry import STEPS
from tasks.reports.publish import publish_report
from tasks.running.layout import Layout
from tasks.running.step import run_step
from tasks.running.tracking import registered_models, track_step
from tasks.sections.running import TrackingConfig
from tests.browser.conftest import Opened, browser, visit
from tests.tasks.production.conftest import champion
from tests.tasks.production.lakes import KEY, FailGate, make_options, make_table, protect, train_champion, with_key, write_lake

__all__ = ["browser", "champion", "visit"]  # fixtures
Visit = Callable[..., Opened]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two versions with labels and a failed audit; a lake without labels; a target where nothing is; a model in MLflow."""
    folder = tmp_path_factory.mktemp("world")
    root = train_champion(folder)
    config = load_config(folder / "params.yaml")
    run_step(STEPS["report"], STEPS["report"].key(KEY.dataset, KEY.method), config, Layout(root), "test")
    publish_report(Layout(root), KEY)
    for days in (1, 2):
        execute(make_options(root, write_lake(make_table(days=days, start=2000), folder / "lake"), folder / "calls"))
    execute(make_options(root, folder / "lake", folder / "calls"))  # nothing to do
    write_lake(make_table(days=3, start=2000), folder / "lake")
    with pytest.raises(AuditFailed):
        protect(root, folder / "lake", folder / "calls", hooks=Hooks(gate=FailGate()))
    bare = write_lake(make_table(start=5000).drop_columns(["gender", "topic"]), folder / "bare")
    execute(make_options(root, bare, folder / "quiet", key=with_key(4)))
    store = TrackingConfig(store=str(folder / "mlflow"))
    with track_step("train", KEY, store, "test", folder) as record:
        record.log_outputs({}, {"model": Layout(root).artefact("model", KEY)}, None)
    return folder


def _built(world: Path, *targets: Path) -> Path:
    settings = world / "console.yaml"
    text = (world / "params.yaml").read_text().replace("enabled: false", f"enabled: true\n  store: {world / 'mlflow'}")
    settings.write_text(text)
    places = ["--models", str(world / "root"), "--params", str(settings), "--out", str(world / "console")]
    done = CliRunner().invoke(app, ["console", "build", *map(str, targets), *places], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    assert done.output.strip() == str(world / "console" / "index.html")
    return world / "console"


@pytest.fixture(scope="module")
def site(world: Path) -> Path:
    return _built(world, world / "quiet", world / "calls", world / "nothing")


def _words(path: Path) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", path.read_text()))


def test_index_is_sorted_by_who_needs_attention(site: Path) -> None:
    text = _words(site / "index.html")
    assert "2 of 2 need attention" in text
    assert text.index("The audit did not pass") < text.index("Nothing was ever published")
    assert "Next: pass-pipeline lake status" in text


def test_page_answers_and_shows_what_manifests_and_receipts_hold(site: Path, world: Path) -> None:
    text = _words(site / "calls.html")
    for said in ("Fresh? Version 2 is", "Correct? Published on an audit", "On time? The audit did not pass"):
        assert said in text
    assert "Audit of the last run fail: Because" in text
    assert "beyond chance" in text  # drift, of the lake without labels
    manifest = json.loads((world / "calls" / "current" / "_manifest.json").read_text())
    pins = next(iter(manifest["partitions"].values()))["pins"]
    assert pins["key"] in text
    assert pins["model"][:12] in text
    assert str(short(sum(one["rows"] for one in manifest["partitions"].values()))) in text
    assert "candidate" in text  # the alias in MLflow
    assert "in the live version" in text
    drawn = (site / "calls.html").read_text()
    nag = manifest["audit"]["details"]["attributes"]["gender"]["nag"]
    assert f"version 2: {100 * nag:.1f}" in drawn
    assert "The last 4 runs: 2 published, 1 unchanged, 1 audit." in drawn


def test_links_lead_to_pages_of_the_site(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) == 4  # index, two data sets, one report
    for page in pages:
        for link in re.findall(r'href="([^"#]+)"', page.read_text()):
            assert (page.parent / link).is_file(), (page.name, link)


def test_no_value_of_a_record_is_on_a_page(site: Path) -> None:
    text = "".join(re.sub(r"<style>.*?</style>", "", path.read_text(), flags=re.DOTALL) for path in site.glob("*.html"))
    for value in ("call-00", "customer-", "note-", "day=", "2026-11-11"):
        assert value not in text


def test_building_again_replaces_the_site_and_a_damaged_target_has_a_page(world: Path, site: Path, tmp_path: Path) -> None:
    for name in ("calls", ".calls.state"):
        shutil.copytree(world / name, tmp_path / name, symlinks=True)
    (tmp_path / "calls" / "current" / "_manifest.json").write_text("{")
    shutil.copytree(world / "root", tmp_path / "root")
    for name in ("params.yaml", "mlflow"):
        (shutil.copytree if (world / name).is_dir() else shutil.copy)(world / name, tmp_path / name)
    folder = _built(tmp_path, tmp_path / "calls")
    assert "damaged" in _words(folder / "index.html")
    assert state_of(str(tmp_path / "calls")).exists()
    (folder / "left.html").write_text("x")
    assert not (_built(tmp_path, tmp_path / "calls") / "left.html").exists()


def test_models_without_a_store_make_none(tmp_path: Path) -> None:
    assert registered_models(TrackingConfig(), tmp_path) == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index", "calls", "nothing"])
def test_axe_finds_nothing_and_pages_fit(name: str, scheme: str, site: Path, visit: Visit) -> None:
    path = next(page for page in site.glob("*.html") if name in page.name)
    opened = visit(path, color_scheme=scheme)
    opened.page.evaluate("document.querySelectorAll('details').forEach(part => part.open = true)")
    assert opened.violations() == []
    assert opened.complaints == []
    assert opened.requests == [path.as_uri()]
    for width in (360, 768, 1280):
        opened.page.set_viewport_size({"width": width, "height": 800})
        overflow: Any = opened.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert overflow <= 0, width
