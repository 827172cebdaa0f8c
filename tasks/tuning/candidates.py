"""Which settings a search tries: overrides of params.yaml, as far as the typed config of the methods knows them."""

import dataclasses
import itertools
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pass_core.channel.pool import Forbidden
from pass_core.data import Attribute
from pass_core.errors import ConfigError
from pass_core.methods.base import find_method, known_attributes
from pass_core.methods.transport.cells import what_can_be_hidden
from tasks.config import Config, load_config
from tasks.tuning.study import Study

# Method -> settings tried together from the start: what decides most between privacy and utility, the likeliest first.
FIRST: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    # Where the useful class is hard to read, its likeliest donors keep it and a draw from its posterior does not; and several
    # classifiers that have not seen a record read it better. Where it is plain to see, one classifier and its posterior do.
    "transport_substitution": (
        *({"epsilon": epsilon, "useful_weight": 4.0, "classifiers": 3, "folds": 4} for epsilon in (0.12, 0.06)),
        *({"epsilon": epsilon} for epsilon in (0.12, 0.06, 0.24, 0.03)),
    ),
    "pass_substitution": ({"preset": "improved", "teacher_epsilon": 0.06}, {"preset": "paper"}),
}
# Method -> settings that the best of the first round is then tried with, one at a time; also other donors and epochs.
THEN: Mapping[str, Mapping[str, tuple[Any, ...]]] = {
    "transport_substitution": {"majority": (1.0, 4.0), "useful_weight": (2.0, 8.0), "folds": (4,)},
    "pass_substitution": {"folds": (4,), "joint_private": (True,)},
}
FACTORS = {"epsilon": (0.7, 1.4)}  # of a setting that has been chosen from a few values
DONORS = (2048, 4096)
MORE_EPOCHS = 2
MOST_DONORS = 0.7  # of the training records: with more, hardly a record is no donor


@dataclass(frozen=True, slots=True)
class Candidate:
    """A method with overrides, dotted path -> value."""

    method: str
    values: Mapping[str, Any]

    def settings(self) -> list[str]:
        """As `--set` takes them."""
        return [f"{path}={json.dumps(value)}" for path, value in self.values.items()]

    def words(self) -> str:
        """Short, for a table."""
        named = {path.rsplit(".", 1)[-1]: value for path, value in self.values.items()}
        shown = (f"{name} {', '.join(value) if isinstance(value, list) else value}" for name, value in named.items())
        return ", ".join([self.method, *shown])

    def config(self, params: Path, overrides: Mapping[str, str]) -> Config:
        """The typed parameters with this candidate's values."""
        given = {path: json.dumps(value) for path, value in self.values.items()}
        config = load_config(params, {**overrides, **given})
        return config.with_names(config.datasets, (self.method,))


def tunable(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods of a search; by default all that it knows."""
    if unknown := [name for name in methods if name not in FIRST]:
        raise ConfigError(f"--method: expected some of {', '.join(FIRST)}, found {', '.join(unknown)}; others have no search yet")
    return tuple(methods) or tuple(FIRST)


def first_candidates(study: Study, config: Config, dataset: str, methods: Sequence[str]) -> list[Candidate]:
    """The candidates of the first round: the configured settings, then every method's with the rules that may be chosen.

    A round that runs out of time has then tried every method and every rule.
    """
    found = [Candidate(method, {}) for method in methods]
    rules = list(itertools.product(_forbids(config.pool.forbid), _knows(study, config, dataset)))
    settings = {method: list(_known_settings(method, FIRST[method])) for method in methods}
    for number in range(max(map(len, settings.values()))):
        for (forbid, knows), method in itertools.product(rules, methods):
            if number < len(settings[method]) and not (method == "pass_substitution" and knows):  # PASS does not use these
                named = {f"method.{method}.{name}": value for name, value in settings[method][number].items()}
                found.append(Candidate(method, {**named, **forbid, **knows}))
    return [one for k, one in enumerate(found) if one not in found[:k]]


def variations(best: Candidate, study: Study, config: Config) -> Iterator[Candidate]:
    """The best candidate of a round with one more setting changed."""
    method, records = best.method, len(study.part)
    for name, factors in FACTORS.items():
        path = f"method.{method}.{name}"
        if path in best.values:
            yield from (Candidate(method, {**best.values, path: round(best.values[path] * factor, 4)}) for factor in factors)
    for name, values in THEN[method].items():
        for each in _known_settings(method, [{name: value} for value in values]):
            yield Candidate(method, {**best.values, f"method.{method}.{name}": each[name]})
    for donors in DONORS:
        if (config.pool.donors or 0) < donors <= MOST_DONORS * records:
            yield Candidate(method, {**best.values, "pool.donors": donors})
    yield Candidate(method, {**best.values, "train.epochs": MORE_EPOCHS * config.train.epochs})


def _known_settings(method: str, settings: Sequence[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Those that the method's config has."""
    names = {field.name for field in dataclasses.fields(find_method(method).config_type)}
    return (values for values in settings if values.keys() <= names)


def _forbids(configured: Forbidden) -> list[Mapping[str, Any]]:
    """The configured rule and stricter ones: a search never loosens what somebody decided."""
    rules = get_args(Forbidden)
    return [{"pool.forbid": rule} if rule != configured else {} for rule in rules[rules.index(configured) :]]


def _knows(study: Study, config: Config, dataset: str) -> list[Mapping[str, Any]]:
    """What training hides from: as configured; where nothing is declared, also from people who know any attribute.

    To name all attributes changes what is trained, not who is judged: without a declaration the audit assumes all of them.
    """
    names = [a.name for a in study.attributes]
    released = config.release.get(dataset, ())
    by_default, by_name = (_hidden_from(study.attributes, knows, released, study) for knows in (None, names))
    if config.attacker.knows is not None or by_name == by_default:
        return [{}]
    return [{"attacker.knows": names}, {}]


def _hidden_from(
    attributes: tuple[Attribute, ...], knows: Sequence[str] | None, released: Sequence[str], study: Study
) -> set[str]:
    known = known_attributes(attributes, knows, released)
    labels = study.part.subset(study.learnt).records.labels
    return {each.known for each in what_can_be_hidden(labels, attributes, known) if not each.problem}
