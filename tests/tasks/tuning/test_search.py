"""The search: budget, resuming, and what it ends with."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

import tasks.tuning.candidates
from tasks.config import Config, load_config, parse_overrides
from tasks.reports.wording import of_a_limit
from tasks.running.numerics import fixed_numerics
from tasks.running.progress import silent
from tasks.settings_file import read_settings
from tasks.tuning.candidates import Candidate, first_candidates, tunable, variations
from tasks.tuning.causes import limits_of
from tasks.tuning.controls import Control
from tasks.tuning.result import conclude
from tasks.tuning.search import Point, Search, final_rank
from tasks.tuning.study import Study, read_study
from tasks.tuning.trial import Judged, Trial
from tests.conftest import LENIENT, TINY, run_all, write_params
from tests.tasks.tuning.test_study import with_garbage_for_tests

DATASET, METHOD = "synthetic_motion", "transport_substitution"
SECTIONS = {
    "methods": [METHOD],
    "train": {"epochs": 3, "batch_size": 64},
    "audit": {**TINY["audit"], "attacks": {"network": {"epochs": 15, "batch_size": 64}}},  # type: ignore[dict-item]
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny project with features, whose limits everything passes."""
    folder = tmp_path_factory.mktemp("tune")
    audit: Any = SECTIONS["audit"]
    path = write_params(folder, **{**SECTIONS, "audit": {**audit, "thresholds": LENIENT}})
    run_all(load_config(path), folder / "root", METHOD, upto="extract")
    return folder


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The configured setting and one variation: the rounds are the same with more."""
    monkeypatch.setattr(tasks.tuning.candidates, "FIRST", {METHOD: ({},)})
    monkeypatch.setattr(tasks.tuning.candidates, "THEN", {METHOD: {}})
    monkeypatch.setattr(tasks.tuning.candidates, "_forbids", lambda _: [{}])
    monkeypatch.setattr(tasks.tuning.candidates, "_knows", lambda *_: [{}])
    with fixed_numerics(1):
        yield


def a_search(project: Path, store: Path, features: Path | None = None, **changes: Any) -> Search:
    params = project / "params.yaml"
    config = load_config(params)
    study = read_study(features or project / "root" / "features" / DATASET, config.dataset[DATASET], config.seed)
    search = Search(
        study=study, params=params, overrides={}, config=config, dataset=DATASET, methods=(METHOD,), store=store, minutes=10,
        base=project, progress=silent,
    )  # fmt: skip
    return dataclasses.replace(search, **changes)


def test_a_search_resumes_and_ends_with_a_setting_that_can_be_run(
    project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    search = a_search(project, tmp_path / "points", overrides={"train.learning_rate": "0.002"})
    points = search.run()
    tuned = conclude(search, points, tmp_path)
    assert tuned.chosen is not None
    assert [point.whole for point in search.tried].count(True) == len(points) == 2
    assert tuned.chosen.first.mnag == max(point.first.mnag for point in points if point.passes)
    assert tuned.settings == tmp_path / f"{DATASET}.yaml"
    config = load_config(project / "params.yaml", parse_overrides(read_settings(tuned.settings)))
    assert (config.methods, config.train.learning_rate) == ((METHOD,), 0.002)
    assert "# It has the highest mNAG of those that pass" in tuned.settings.read_text()
    assert tuned.picture.read_bytes().startswith(b"\x89PNG")
    page = tuned.page.read_text()
    assert "a setting that passes" in page
    assert page.count("<tr>") == len(search.tried) + 1

    def never(_: object) -> None:
        raise AssertionError("a finished point was computed again")

    monkeypatch.setattr("tasks.tuning.trial.Trial.judge", never)
    assert a_search(project, tmp_path / "points", overrides={"train.learning_rate": "0.002"}).run() == points


def test_test_records_change_no_point(project: Path, tmp_path: Path) -> None:
    features = project / "root" / "features" / DATASET
    config, found = load_config(project / "params.yaml"), []
    for folder in (features, with_garbage_for_tests(features, tmp_path)):
        study = read_study(folder, config.dataset[DATASET], config.seed)
        trial = Trial(
            study=study, config=config, dataset=DATASET, method=METHOD, share=1.0, whole=False,
            control=Control(config.audit.attacks["network"]),
        )  # fmt: skip
        found.append(trial.judge())
    assert found[0] == found[1]
    accuracy, guess = found[0][0].originals["activity"]
    assert accuracy > guess + 0.2, "the control: the held-out records are read"


def test_the_budget_is_kept_and_one_point_on_all_records_is_made(project: Path, tmp_path: Path) -> None:
    ticks = iter(range(0, 10**9, 100))
    search = a_search(project, tmp_path / "points", minutes=5, clock=lambda: float(next(ticks)))
    points = search.run()
    assert [point.whole and bool(point.judged) for point in points] == [True]
    assert search.left >= 1


def judged(**changes: Any) -> Judged:
    found = Judged(
        part="enrolled", verdict="pass", privacy="below the limit", utility="kept", mnag=0.5, private=0.0, useful=0.9,
        pressure=0.5, nag={"activity": 0.9}, originals={"activity": (0.95, 0.3)}, unreadable=(), broken=(), undecided=(),
    )  # fmt: skip
    return dataclasses.replace(found, **changes)


def point(*parts: Judged) -> Point:
    return Point(candidate=Candidate(METHOD, {}), share=1.0, whole=True, judged=parts)


def check(name: str, **more: Any) -> dict[str, Any]:
    """A check that stops a point."""
    return {
        "name": name,
        "about": "gender",
        "attribute": "gender",
        "sentence": f"{name} of gender",
        "units": None,
        "needed": None,
    } | more


def test_a_passing_point_comes_first_then_the_nearest() -> None:
    broken, undecided = (check("reidentified_at_most"),), (check("private_nag_at_most"),)
    leaking = point(judged(mnag=0.9, verdict="fail", broken=broken))
    elsewhere = point(judged(mnag=0.8), judged(part="strangers", broken=broken))
    unsure = point(judged(mnag=0.7, verdict="undecided", undecided=undecided))
    best, worse = point(judged(mnag=0.6)), point(judged(mnag=0.5))
    assert sorted([leaking, worse, elsewhere, best, unsure, point()], key=final_rank, reverse=True)[:3] == [best, worse, unsure]
    assert not elsewhere.passes


def test_a_setting_that_hides_and_loses_a_useful_attribute_is_written_with_that_reason(project: Path, tmp_path: Path) -> None:
    """Where no setting keeps an entangled attribute, the best one that hides is of use; but it does not pass."""
    lost, leak = check("useful_nag_at_least"), check("private_nag_at_most")
    hiding = point(judged(mnag=0.4, verdict="fail", utility="lost", broken=(lost,)))
    worse = point(judged(mnag=0.3, verdict="fail", utility="lost", broken=(lost,)))
    leaking = point(judged(mnag=0.9, verdict="fail", privacy="leak shown", broken=(leak,)))
    elsewhere = point(judged(mnag=0.8, verdict="fail", utility="lost", broken=(lost,)), judged(part="strangers", broken=(leak,)))
    unsure = point(judged(mnag=0.7, verdict="undecided", privacy="cannot be decided", undecided=(leak,)))
    passing = point(judged(mnag=0.2))
    ranked = sorted([leaking, worse, elsewhere, unsure, hiding, passing], key=final_rank, reverse=True)
    assert ranked[:3] == [passing, hiding, worse]
    tuned = conclude(a_search(project, tmp_path / "points"), ranked[1:], tmp_path)
    assert tuned.chosen == hiding
    assert not tuned.chosen.passes
    assert tuned.settings is not None
    settings = tuned.settings.read_text()
    assert "none passes, since a useful one is not shown to be kept: 40.0%" in settings
    assert "# Not kept: useful_nag_at_least of gender." in settings
    assert any("a useful attribute is lost" in cause.what for cause in tuned.causes)
    assert conclude(a_search(project, tmp_path / "points"), [leaking, elsewhere, unsure], tmp_path).settings is None


@pytest.fixture(scope="module")
def study(project: Path) -> Study:
    config = load_config(project / "params.yaml")
    return read_study(project / "root" / "features" / DATASET, config.dataset[DATASET], config.seed)


def test_what_limits_a_search_is_named(study: Study) -> None:
    def causes(*parts: Judged) -> str:
        return "\n".join(cause.words() for cause in limits_of([point(*parts)], study))

    few = check("private_nag_at_most", units=12, needed=60)
    assert "about 60 held-out ones instead of 12" in causes(judged(verdict="undecided", undecided=(few,)))
    assert "pool.forbid: same_person" in causes(judged(verdict="fail", broken=(check("reidentified_at_most"),)))
    weak = causes(judged(verdict="fail", originals={"activity": (0.5, 0.4)}, broken=(check("useful_nag_at_least"),)))
    assert "the features hardly show activity: 50.0% on originals, 40.0% by guessing: choose another extractor" in weak
    part = study.part
    labels = {**part.records.labels, "gender": part.records.labels["activity"] % 2}
    entangled = dataclasses.replace(
        study, part=dataclasses.replace(part, records=dataclasses.replace(part.records, labels=labels))
    )
    assert any("gender shares 0." in cause.what for cause in limits_of([], entangled))


def test_nothing_that_passes_leaves_no_settings_file(project: Path, tmp_path: Path) -> None:
    (tmp_path / f"{DATASET}.yaml").write_text("an earlier search's")
    search = a_search(project, tmp_path / "points")
    search.left = 3
    failing = point(judged(verdict="fail", broken=(check("reidentified_at_most"),)))
    tuned = conclude(search, [failing], tmp_path)
    assert tuned.causes[-1].words() == "3 settings were not tried: give more --minutes; finished points are kept"
    assert (tuned.chosen, tuned.settings) == (None, None)
    assert not (tmp_path / f"{DATASET}.yaml").exists()
    assert [cause.what for cause in tuned.causes if "traced" in cause.what] == ["releases are traced to their originals"]
    assert "What limits it, and the change that would help" in tuned.page.read_text()


def test_what_the_user_decided_is_never_loosened(study: Study, project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    config = load_config(project / "params.yaml")
    strict = dataclasses.replace(config.pool, forbid="same_person")

    def tried(config: Config, name: str) -> set[Any]:
        return {one.values.get(name) for one in first_candidates(study, config, DATASET, tunable(()))}

    assert tried(config, "pool.forbid") == {None, "same_person"}
    assert tried(dataclasses.replace(config, pool=strict), "pool.forbid") == {None}
    declared = dataclasses.replace(config, attacker=dataclasses.replace(config.attacker, knows=("activity",)))
    assert tried(declared, "attacker.knows") == {None}
    for method in tunable(()):
        for one in [Candidate(method, {}), *variations(Candidate(method, {}), study, config)]:
            assert one.config(project / "params.yaml", {}).methods == (method,)
            assert yaml.safe_load(one.settings()[0].partition("=")[2]) is not None if one.values else True


def test_a_figure_far_beyond_a_limit_near_zero_is_shown_without_its_digits() -> None:
    assert of_a_limit(0.5).startswith("50")
    assert of_a_limit(5502.8) == "over 10 times"
