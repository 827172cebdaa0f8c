"""Which records become donors: counts, shares and consent for any data; what cannot be had is told."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pass_core.channel.pool import Column, PoolConfig, sample_pool
from pass_core.errors import ConfigError, DataError
from pass_core.randomness import stream

GENDERS, DIGITS, ANSWERS = ("female", "male"), tuple("0123456789"), ("no", "yes")


def _column(classes: tuple[str, ...], labels: Any) -> Column:
    return Column(classes, np.asarray(labels, dtype=np.int64), classes)


def _people(n: int = 2000, seed: int = 0) -> dict[str, Column]:
    """Seven of ten are male; digits are equally common; 60 % have consented."""
    rng = stream(seed, "people")
    return {
        "gender": _column(GENDERS, rng.random(n) < 0.7),
        "digit": _column(DIGITS, rng.permutation(n) % 10),
        "consent": _column(ANSWERS, rng.random(n) < 0.6),
    }


def _counts(column: Column, donors: np.ndarray) -> dict[str, int]:
    return dict(zip(column.classes, np.bincount(column.labels[donors], minlength=len(column.classes)).tolist(), strict=True))


def test_pool_is_a_uniform_sample_with_every_useful_class() -> None:
    columns = {"u": _column(("a", "b", "c", "d"), np.arange(100) % 4)}
    counts = np.zeros(100)
    for seed in range(300):
        counts[sample_pool(columns, ("u",), 100, PoolConfig(donors=40), stream(seed, "pool"))] += 1
    # 300 draws of 40 in 100: each index 120 times, standard deviation 8.5; five of them.
    assert np.abs(counts - 120).max() < 43


def test_uniform_pools_are_those_of_earlier_versions() -> None:
    """A pool that changed would change every model and release that was ever recorded."""
    columns = {"u": _column(("a", "b", "c"), np.arange(40) % 3)}
    donors = sample_pool(columns, ("u",), 40, PoolConfig(donors=12), stream(7, "donors"))
    assert donors.tolist() == [2, 9, 10, 18, 22, 24, 25, 27, 28, 30, 32, 39]
    assert donors.dtype == np.int64


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 300), st.data())
def test_uniform_is_one_choice_of_the_stream(n: int, data: st.DataObject) -> None:
    count, seed = data.draw(st.integers(1, n)), data.draw(st.integers(0, 10_000))
    columns = {"u": _column(("a",), np.zeros(n))}
    expected = np.sort(np.random.default_rng(seed).choice(n, size=count, replace=False))
    assert (sample_pool(columns, ("u",), n, PoolConfig(donors=count), np.random.default_rng(seed)) == expected).all()


@st.composite
def _pools(draw: st.DrawFn) -> tuple[dict[str, Column], PoolConfig, int]:
    """Records with three attributes, some classes rare or absent; any way of sampling; a seed."""
    n, seed = draw(st.integers(20, 120)), draw(st.integers(0, 100_000))
    rng = np.random.default_rng(seed)
    columns = {
        name: _column(classes, rng.choice(len(classes), n, p=rng.dirichlet(np.ones(len(classes)))))
        for name, classes in (("gender", GENDERS), ("topic", ("a", "b", "c")), ("consent", ANSWERS))
    }
    chosen: dict[str, Any] = {"only": {"consent": "yes"}} if draw(st.booleans()) else {}
    way = draw(st.sampled_from(["uniform", "target", "two targets", "stratify"]))
    if "target" in way:
        percent = draw(st.integers(0, 100))
        chosen["target"] = {"gender": {"male": percent / 100, "female": (100 - percent) / 100}}
    if way == "two targets":
        chosen["target"] |= {"topic": {"b": draw(st.integers(0, 100)) / 100}}
    if way == "stratify":
        chosen["stratify"] = draw(st.sampled_from([("gender",), ("topic", "gender"), ("gender", "topic", "consent")]))
    return columns, PoolConfig(donors=draw(st.integers(6, 15)), **chosen), seed


@settings(max_examples=300, deadline=None)
@given(_pools())
def test_pool_keeps_what_was_asked_for_or_says_that_it_cannot(drawn: tuple[dict[str, Column], PoolConfig, int]) -> None:
    columns, config, seed = drawn
    n = len(columns["gender"].labels)
    allowed = np.flatnonzero(columns["consent"].labels == 1) if config.only else np.arange(n)
    names = tuple(config.target) or config.stratify
    if config.target:
        shares = [_shares(columns[name], wanted) for name, wanted in config.target.items()]
        quotas = config.donors * np.prod(np.meshgrid(*shares, indexing="ij"), axis=0)
    else:
        quotas = config.donors * _table(columns, names, np.arange(n)) / n
    try:
        donors = sample_pool(columns, (), n, config, np.random.default_rng(seed))
    except ConfigError:
        assert np.isnan(quotas).any()  # nobody is there to take the rest
        return
    except DataError:
        assert config.donors > len(allowed) or (_table(columns, names, allowed) < np.ceil(quotas - 1e-9)).any()
        return
    assert len(donors) == config.donors
    assert (np.diff(donors) > 0).all()
    assert set(donors.tolist()) <= set(allowed.tolist())
    if names:
        assert np.abs(_table(columns, names, donors) - quotas).max() < 1 - 1e-9


def _shares(column: Column, wanted: Any) -> list[float]:
    """The documented rule, by hand: classes that are not named but occur share the rest; not a number where none is left."""
    others = [name for k, name in enumerate(column.classes) if name not in wanted and (column.labels == k).any()]
    rest = round(1 - sum(wanted.values()), 9)
    shares = [wanted.get(name, rest / len(others) if name in others else 0.0) for name in column.classes]
    return shares if others or not rest else [np.nan] * len(shares)


def _table(columns: dict[str, Column], names: tuple[str, ...], rows: np.ndarray) -> np.ndarray:
    counts = np.zeros([len(columns[name].classes) for name in names])
    np.add.at(counts, tuple(columns[name].labels[rows] for name in names), 1)
    return counts


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10_000))
def test_stratified_pool_of_all_records_is_never_refused(seed: int) -> None:
    """No combination is asked for more than it has, down to the last record."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 80))
    columns = {"a": _column(("0", "1", "2"), rng.integers(0, 3, n)), "b": _column(DIGITS, rng.integers(0, 10, n))}
    for donors in {1, n // 2 + 1, n - 1 or 1, n}:
        pool = sample_pool(columns, (), n, PoolConfig(donors=donors, stratify=("a", "b")), rng)
        assert len(set(pool.tolist())) == donors


@pytest.mark.parametrize("male", [0.9, 0.7, 0.5, 0.3, 0.1])
def test_the_papers_pools_by_gender(male: float) -> None:
    columns = _people()
    config = PoolConfig(donors=500, target={"gender": {"male": male, "female": round(1 - male, 1)}})
    donors = sample_pool(columns, ("digit",), 2000, config, stream(1, "pool"))
    assert _counts(columns["gender"], donors) == {"female": 500 - round(500 * male), "male": round(500 * male)}


def test_the_papers_pools_by_digit() -> None:
    """One digit has half of the donors, the others share the rest equally, without being named."""
    columns = _people()
    donors = sample_pool(columns, ("digit",), 2000, PoolConfig(donors=360, target={"digit": {"3": 0.5}}), stream(1, "pool"))
    assert _counts(columns["digit"], donors) == {digit: 180 if digit == "3" else 20 for digit in DIGITS}


def test_several_targets_are_independent_in_the_pool() -> None:
    columns = _people()
    config = PoolConfig(donors=200, target={"gender": {"male": 0.5}, "digit": {"0": 0.1}})
    donors = sample_pool(columns, ("digit",), 2000, config, stream(1, "pool"))
    assert (_table(columns, ("gender", "digit"), donors) == 10).all()


def test_within_a_class_everybody_is_equally_likely() -> None:
    columns = {"u": _column(("a", "b"), np.arange(60) % 3 == 0)}
    counts = np.zeros(60)
    for seed in range(400):
        counts[sample_pool(columns, ("u",), 60, PoolConfig(donors=20, target={"u": {"b": 0.5}}), stream(seed, "pool"))] += 1
    # Of 20 records in b 10 are drawn, of 40 in a 10: 200 and 100 times of 400; five standard deviations.
    assert np.abs(counts[::3] - 200).max() < 50
    assert np.abs(np.delete(counts, np.s_[::3]) - 100).max() < 44


def test_equal_remainders_are_settled_by_lot() -> None:
    """Were they settled by name, the last persons of the alphabet would never be donors."""
    columns = {"id": _column(DIGITS, np.arange(50) % 10)}
    config = PoolConfig(donors=5, stratify=("id",))
    pools = [sample_pool(columns, (), 50, config, stream(seed, "pool")) for seed in range(60)]
    assert set(columns["id"].labels[np.concatenate(pools)].tolist()) == set(range(10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"donors": 0}, "donors: expected at least 1"),
        ({"target": {"gender": {"male": 0.5}}, "stratify": ("digit",)}, "target: expected without `stratify`"),
        ({"stratify": ("digit", "digit")}, "stratify: expected every attribute once, found several times: digit"),
        ({"target": {"gender": {}}}, "target: expected the share of at least one class of 'gender'"),
        ({"target": {"gender": {"male": 1.5}}}, "target: expected shares of 'gender' between 0 and 1, found 1.5"),
        ({"target": {"gender": {"male": -0.1}}}, "between 0 and 1, found -0.1"),
        ({"target": {"gender": {"male": float("nan")}}}, "between 0 and 1, found nan"),
        ({"target": {"gender": {"male": 0.9, "female": 0.2}}}, "target: expected shares of 'gender' that sum to 1, found 1.1"),
    ],
)
def test_settings_that_cannot_be_meant(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        PoolConfig(**settings)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"target": {"hair": {"red": 0.5}}},
            "pool.target: unknown attribute 'hair': expected some of gender, digit, consent;",
        ),
        ({"stratify": ("hair",)}, "pool.stratify: unknown attribute 'hair'"),
        ({"only": {"agreed": "yes"}}, "pool.only: unknown attribute 'agreed'"),
        ({"target": {"gender": {"man": 0.5}}}, "pool.target: unknown class 'man' of 'gender': expected one of female, male$"),
        (
            {"only": {"consent": "true"}},
            "unknown class 'true' of 'consent': expected one of no, yes .put yes and no in quotes",
        ),
        (
            {"target": {"gender": {"male": 0.5, "female": 0.4}}},
            "pool.target: expected shares of 'gender' that sum to 1, found 0.9 and no other class for the rest",
        ),
        (
            {"donors": 15, "target": {"gender": {"male": 0.5}, "digit": {"0": 0.1}}},
            "at least one donor for each of its 20 combinations of classes, found pool.donors: 15; raise it or name fewer",
        ),
    ],
)
def test_unknown_names_list_the_known_ones(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        sample_pool(_people(), ("digit",), 2000, PoolConfig(**({"donors": 100} | settings)), stream(1, "p"))


def test_class_that_is_one_person_is_not_named() -> None:
    columns = {"id": Column(("anna", "ben"), np.array([0, 0, 1, 1]), ("class 1", "class 2"))}
    with pytest.raises(ConfigError, match="expected one of its 2 classes, each of one person") as error:
        sample_pool(columns, (), 4, PoolConfig(donors=2, only={"id": "carl"}), stream(1, "p"))
    assert "anna" not in str(error.value)
    with pytest.raises(DataError, match=r"3 training record\(s\) with id 'class 1' to draw donors from, found 2") as error:
        sample_pool(columns, (), 4, PoolConfig(donors=3, target={"id": {"anna": 1.0}}), stream(1, "p"))
    assert "anna" not in str(error.value)


def _few(consented: int) -> dict[str, Column]:
    """A hundred records, ten of each digit, half of them male; the first so many have consented."""
    return {
        "gender": _column(GENDERS, np.arange(100) // 10 % 2),
        "digit": _column(DIGITS, np.arange(100) % 10),
        "consent": _column(ANSWERS, np.arange(100) < consented),
    }


@pytest.mark.parametrize(
    ("consented", "settings", "message"),
    [
        (100, {"donors": 101, "only": {}}, r"pool\.donors: expected at most the 100 training records, found 101"),
        (30, {"donors": 31}, r"pool\.donors: expected at most the 30 training records, of 100, that pool\.only allows, found 31"),
        (
            100,
            {"donors": 80, "target": {"gender": {"male": 0.9, "female": 0.1}}},
            r"pool\.target: expected 72 training record\(s\) with gender 'male' .* found 50 .*; lower pool\.donors or this share",
        ),
        (
            100,
            {"donors": 40, "target": {"gender": {"male": 0.7}, "digit": {"3": 0.5}}},
            r"expected 14 training record\(s\) with gender 'male' and digit '3' to draw donors from, found 5",
        ),
        (
            30,
            {"donors": 30, "stratify": ("gender",)},
            r"pool\.stratify: expected 15 .* gender 'male' .*, found 10 that pool\.only allows; lower pool\.donors$",
        ),
        (5, {"donors": 5}, "none for 5 class.es. of useful attribute 'digit': pool.only allows no record of 5 of them"),
        (
            100,
            {"donors": 9},
            r"found none for \d+ class\(es\) of useful attribute 'digit': raise pool\.donors or",
        ),
        (100, {"donors": 9, "stratify": ("digit",)}, r"none for 1 class\(es\) of useful attribute 'digit'"),
        (100, {"donors": 10, "target": {"digit": {"3": 1.0}}}, "none for 9 class.es. .*give every class a share in pool.target"),
    ],
)
def test_what_cannot_be_had_is_told_with_counts(consented: int, settings: dict[str, Any], message: str) -> None:
    config = PoolConfig(**({"only": {"consent": "yes"}} | settings))
    with pytest.raises(DataError, match=message):
        sample_pool(_few(consented), ("digit",), 100, config, stream(1, "p"))
