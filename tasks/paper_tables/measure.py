"""How accurately an attacker reads each attribute from what a protector releases; tables compute NAG from it."""

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from pass_core.attacks.base import AttackTask
from pass_core.attacks.network import ATTACK, NetworkAdversary, NetworkConfig, train_classifier
from pass_core.auditing.subject import DrawnRelease, MadeRelease, Part, Subject, make_subject
from pass_core.channel.joint_law import ChannelLaw, channel_law, mutual_information, rule_accuracy
from pass_core.channel.substitution import channel_of_records
from pass_core.checks import ranged
from pass_core.data import Attribute, FloatArray, IntArray, Records, Rng
from pass_core.methods.base import Adversarial, Fitted
from pass_core.randomness import stream, torch_generator
from pass_core.statistics.nag import hits_of, majority_class
from pass_core.training.epochs import OnEpoch


@dataclass(frozen=True, slots=True)
class ProbeConfig(NetworkConfig):
    """The attacker's training; each epoch uses the next of `draws` releases of the training records."""

    draws: int = ranged(8, at_least=1)


@dataclass(frozen=True, slots=True)
class Split:
    """Records to learn from and records to score on; the attributes under attack."""

    attributes: tuple[Attribute, ...]
    train: Records
    test: Records


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeScores:
    """Accuracies of one attribute on test records, as fractions."""

    guess: float  # always the training set's most common class
    unprotected: float  # classifier of originals, on originals
    attacker: float  # trained on released records
    balanced: float  # the attacker's, mean over classes
    unfinetuned: float  # classifier of originals, on what is released
    protector: float | None  # the adversary that the protector was trained against; None: it had none
    exact: float | None  # best rule donor -> class, learnt on training records; None for methods without a pool
    information: float | None  # I(X';A) on training records, nats


def learn_control(train: Records, attribute: Attribute, config: NetworkConfig, rng: Rng, on_epoch: OnEpoch) -> NetworkAdversary:
    """The paper's classifier, trained on original records."""
    labels, count = train.labels[attribute.name], attribute.n_classes
    task = AttackTask(released_train=lambda _: train.features, train_labels=labels, n_classes=count)
    return ATTACK.learn(task, config, rng, on_epoch)


def learn_probe(
    released_train: Callable[[int], FloatArray],
    labels: IntArray,
    n_classes: int,
    *,
    control: NetworkAdversary,
    config: NetworkConfig,
    rng: Rng,
    on_epoch: OnEpoch,
) -> NetworkAdversary:
    """The probing attack: the paper's classifier, trained on releases from scratch or from the control's weights."""
    if config.start == "scratch":
        task = AttackTask(released_train=released_train, train_labels=labels, n_classes=n_classes)
        return ATTACK.learn(task, config, rng, on_epoch)
    network = copy.deepcopy(control.network)
    train_classifier(network, released_train, labels, config, generator=torch_generator(rng), on_epoch=on_epoch)
    return NetworkAdversary(network)


def measure(
    fitted: Fitted,
    split: Split,
    donor_features: FloatArray,
    *,
    controls: Mapping[str, NetworkAdversary],
    config: ProbeConfig,
    seed: int,
    on_epoch: Callable[[str], OnEpoch],
) -> dict[str, AttributeScores]:
    """Attacks every attribute of one release of the test records; `on_epoch(attribute)` listens to its attack."""
    test, rng, law = split.test, stream(seed, "release", "test"), None
    if fitted.channel is not None:
        channel = channel_of_records(fitted.channel, test.labels, None)
        law = channel_law(channel, test.features, test.labels, split.attributes, rng=rng, n_draws=1)
    subject = _subject(fitted, split, donor_features, law, draws=config.draws, seed=seed)
    own, drawn = (fitted.adversaries if isinstance(fitted, Adversarial) else {}), subject.substitution
    found = {}
    for attribute in split.attributes:
        name, released = attribute.name, subject.released_test
        train_labels, labels = split.train.labels[name], split.test.labels[name]
        control, adversary, rng, report = controls[name], own.get(name), stream(seed, "probe", name), on_epoch(name)
        probe = learn_probe(
            subject.released_train, train_labels, attribute.n_classes, control=control, config=config, rng=rng, on_epoch=report
        )
        hits = hits_of(probe.probabilities(released), labels)
        found[name] = AttributeScores(
            guess=float((labels == majority_class(train_labels)).mean()),
            unprotected=float(hits_of(control.probabilities(split.test.features), labels).mean()),
            attacker=float(hits.mean()),
            balanced=float(np.mean([hits[labels == k].mean() for k in np.unique(labels)])),
            unfinetuned=float(hits_of(control.probabilities(released), labels).mean()),
            protector=None if adversary is None else float(hits_of(adversary.probabilities(released), labels).mean()),
            exact=rule_accuracy(drawn.train_law.joint[name], law.joint[name]) if drawn and law else None,
            information=mutual_information(drawn.train_law.joint[name]) if drawn else None,
        )
    return found


def _subject(
    fitted: Fitted, split: Split, donor_features: FloatArray, law: ChannelLaw | None, *, draws: int, seed: int
) -> Subject:
    """The split as the audit sees it, without the combination of attributes, which the paper does not attack."""
    release: DrawnRelease | MadeRelease
    channel = fitted.channel
    if channel is None or law is None:
        made = fitted.transform(split.test.features, stream(seed, "release", "test"))
        release = MadeRelease((made,), lambda k: fitted.transform(split.train.features, stream(seed, "release", str(k % draws))))
    else:
        release = DrawnRelease(
            channel=lambda kind, rows: channel_of_records(channel, getattr(split, kind).subset(rows).labels, None),
            donor_features=donor_features,
            drawn_test=law.draws[0],
            fresh_draws=draws,
            rng=stream(seed, "release", "train"),
        )
    # Attributes are attacked record by record here: persons and blocks do not matter.
    train, test = (Part(one, np.arange(len(one)), np.arange(len(one))) for one in (split.train, split.test))
    return make_subject(attributes=split.attributes, train=train, test=test, release=release, combine_private=False)
