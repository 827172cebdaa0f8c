"""Records whose private and useful class are planted, and how far a fresh attacker reads either from what is released."""

import numpy as np
import torch

from pass_core.attacks.base import AttackTask
from pass_core.attacks.network import ATTACK, NetworkConfig
from pass_core.data import Attribute, IntArray, Records
from pass_core.methods.base import Fitted, ReleaseContext
from pass_core.randomness import stream

S = Attribute("s", ("a", "b"), "private")
U = Attribute("u", ("a", "b", "c"), "useful")


def planted(shape: tuple[int, ...], n: int, seed: int = 0) -> Records:
    """Balanced classes, independent of each other; every entry tells a little of both, in patterns that are the same for all.

    Images are of tiles of 8 × 8 pixels, within [0, 1].
    """
    drawn = (shape[0], *(side // 8 for side in shape[1:])) if len(shape) == 3 else shape
    patterns = stream(1, "patterns", str(shape))
    s_pattern, u_pattern = patterns.normal(size=(2, *drawn)), patterns.normal(size=(3, *drawn))
    rng = stream(seed, "planted", str(shape))
    s, u = np.arange(n) % 2, (np.arange(n) // 2) % 3
    x = rng.normal(size=(n, *drawn)) + 0.6 * s_pattern[s] + 0.6 * u_pattern[u]
    if len(shape) == 3:
        x = np.clip(x.repeat(8, axis=2).repeat(8, axis=3) / 8 + 0.5, 0, 1)
    return Records(x.astype(np.float32), {"s": s, "u": u})


def setting_of(data: Records, donors: int = 60, attributes: tuple[Attribute, ...] = (S, U)) -> ReleaseContext:
    """The first records are the donors."""
    return ReleaseContext(attributes, data.subset(np.arange(donors)), torch.device("cpu"))


def advantage(predicted: IntArray, labels: IntArray) -> float:
    """NAG against an attacker who is never wrong: 0 is guessing among balanced classes."""
    guess = 1 / len(np.unique(labels))
    return max(0.0, (float((predicted == labels).mean()) - guess) / (1 - guess))


def attacker_advantage(fitted: Fitted, train: Records, test: Records, attribute: Attribute, epochs: int = 12) -> float:
    """Of a fresh network that learns from what is released, another draw every epoch."""
    released = [fitted.transform(train.features, stream(8, "train", str(k))) for k in range(4)]
    task = AttackTask(
        released_train=lambda draw: released[draw % 4], train_labels=train.labels[attribute.name], n_classes=attribute.n_classes
    )
    config = NetworkConfig(epochs=epochs, batch_size=64, learning_rate=0.003)
    adversary = ATTACK.learn(task, config, stream(8, "attack", attribute.name), lambda _: None)
    told = adversary.probabilities(fitted.transform(test.features, stream(9, "test")))
    return advantage(told.argmax(axis=1), test.labels[attribute.name])
