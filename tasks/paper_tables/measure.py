"""An attacker's accuracies on a fitted protector's release, per attribute, from which tables compute NAG."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.attacks.base import AttackTask
from pass_core.attacks.network import ATTACK, NetworkAdversary, NetworkConfig, train_classifier
from pass_core.channel.joint_law import channel_law, mutual_information, rule_accuracy
from pass_core.data import Attribute, DoubleArray, FloatArray, IntArray, Records
from pass_core.methods.base import Adversarial, Fitted
from pass_core.randomness import stream, torch_generator
from pass_core.statistics.nag import hits_of, majority_class
from pass_core.training.epochs import OnEpoch
from tasks.paper_tables.settings import ProbeConfig


@dataclass(frozen=True, slots=True)
class Split:
    """Records to learn from and records to score on; the attributes under attack."""

    attributes: tuple[Attribute, ...]
    train: Records
    test: Records


@dataclass(frozen=True, slots=True)
class Released:
    """Released records: `train(draw)` is one of `draws` releases of the training records; joint laws where donors are drawn."""

    train: Callable[[int], FloatArray]
    test: FloatArray
    train_joint: Mapping[str, DoubleArray] | None = None
    test_joint: Mapping[str, DoubleArray] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeScores:
    """Accuracies of one attribute on test records, as fractions."""

    guess: float  # the training set's commonest class
    unprotected: float  # classifier of originals, on originals
    attacker: float  # trained on released records
    balanced: float  # the attacker's, mean over classes
    unfinetuned: float  # classifier of originals, on released records
    protector: float | None  # of the protector's own adversary; None where it has none
    exact: float | None  # best rule donor -> class, learnt on training records; None where nothing is drawn from a pool
    information: float | None  # I(X';A) on training records, nats


def learn_control(
    train: Records, attribute: Attribute, config: NetworkConfig, rng: np.random.Generator, on_epoch: OnEpoch
) -> NetworkAdversary:
    """The paper's classifier, of original records."""
    task = AttackTask(
        released_train=lambda _: train.features, train_labels=train.labels[attribute.name], n_classes=attribute.n_classes
    )
    return ATTACK.learn(task, config, rng, on_epoch)


def learn_probe(
    released: Released,
    labels: IntArray,
    n_classes: int,
    control: NetworkAdversary,
    *,
    config: NetworkConfig,
    rng: np.random.Generator,
    on_epoch: OnEpoch,
) -> NetworkAdversary:
    """The probing attack: the paper's classifier, of released records; from scratch or from the classifier of originals."""
    if config.start == "scratch":
        return ATTACK.learn(
            AttackTask(released_train=released.train, train_labels=labels, n_classes=n_classes), config, rng, on_epoch
        )
    network = copy.deepcopy(control.network)
    train_classifier(network, released.train, labels, config, generator=torch_generator(rng), on_epoch=on_epoch)
    return NetworkAdversary(network)


def release(fitted: Fitted, split: Split, draws: int, seed: int, donor_features: FloatArray) -> Released:
    """One release of the test records, and `draws` independent ones of the training records."""
    if fitted.channel is None:
        test = fitted.transform(split.test.features, stream(seed, "release", "test"))
        return Released(lambda k: fitted.transform(split.train.features, stream(seed, "release", str(k % draws))), test)
    train_law, test_law = (
        channel_law(fitted.channel, part.features, part.labels, split.attributes, rng=stream(seed, "release", name), n_draws=n)
        for part, name, n in ((split.train, "train", draws), (split.test, "test", 1))
    )
    return Released(
        lambda k: donor_features[train_law.draws[k % draws]],
        donor_features[test_law.draws[0]],
        train_law.joint,
        test_law.joint,
    )


def measure(
    fitted: Fitted,
    released: Released,
    split: Split,
    controls: Mapping[str, NetworkAdversary],
    *,
    config: ProbeConfig,
    seed: int,
    on_epoch: Callable[[str], OnEpoch],
) -> dict[str, AttributeScores]:
    """Attacks every attribute; `on_epoch(attribute)` listens to its attack."""
    own = fitted.adversaries if isinstance(fitted, Adversarial) else {}
    found = {}
    for attribute in split.attributes:
        name = attribute.name
        train_labels, labels = split.train.labels[name], split.test.labels[name]
        control = controls[name]
        rng = stream(seed, "probe", name)
        probe = learn_probe(released, train_labels, attribute.n_classes, control, config=config, rng=rng, on_epoch=on_epoch(name))
        hits = hits_of(probe.probabilities(released.test), labels)
        adversary = own.get(name)
        found[name] = AttributeScores(
            guess=float((labels == majority_class(train_labels)).mean()),
            unprotected=float(hits_of(control.probabilities(split.test.features), labels).mean()),
            attacker=float(hits.mean()),
            balanced=float(np.mean([hits[labels == k].mean() for k in np.unique(labels)])),
            unfinetuned=float(hits_of(control.probabilities(released.test), labels).mean()),
            protector=None if adversary is None else float(hits_of(adversary.probabilities(released.test), labels).mean()),
            exact=exact_accuracy(released, name),
            information=None if released.train_joint is None else mutual_information(released.train_joint[name]),
        )
    return found


def exact_accuracy(released: Released, name: str) -> float | None:
    """Accuracy of the exact attacker, where donors are drawn."""
    if released.train_joint is None or released.test_joint is None:
        return None
    return rule_accuracy(released.train_joint[name], released.test_joint[name])
