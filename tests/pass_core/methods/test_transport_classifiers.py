"""Several classifiers inside transport: the rounds see every record as one that no classifier has learnt from."""

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional as F

from pass_core.channel.joint_law import channel_law, rule_accuracy
from pass_core.data import Attribute, IntArray, Records
from pass_core.errors import ConfigError
from pass_core.methods.base import FittedChannel, ReleaseContext, fit_method
from pass_core.methods.transport.cells import Cells
from pass_core.methods.transport.channel import TransportConfig
from pass_core.methods.transport.classifier import learn_classifier
from pass_core.methods.transport_substitution import METHOD
from pass_core.randomness import stream, torch_generator
from pass_core.storage.models import restore_model, save_model
from pass_core.training.context import TrainingContext
from pass_core.training.loop import TrainConfig

ATTRIBUTES = (Attribute("s", ("a", "b"), "private"), Attribute("u", ("a", "b"), "useful"))
TRAINING = TrainConfig(epochs=40, batch_size=64, learning_rate=0.003, validation_share=0.1)
N, DIM, DONORS = 400, 40, 60


def _data(seed: int, persons: IntArray) -> Records:
    """The private class is plain to see. Of the useful one a classifier learns only by heart who has it: it is the person's."""
    rng = stream(seed, "classifiers")
    who = rng.normal(0, 1, (persons.max() + 1, DIM)).astype(np.float32)
    labels = {"s": rng.integers(0, 2, len(persons)), "u": rng.integers(0, 2, persons.max() + 1)[persons]}
    x = who[persons] + rng.normal(0, 0.1, (len(persons), DIM)).astype(np.float32)
    x[:, 0] = 4 * labels["s"]
    return Records(x, labels)


@pytest.fixture(scope="module")
def persons() -> IntArray:
    return np.arange(N) // 4


@pytest.fixture(scope="module")
def data(persons: IntArray) -> Records:
    return _data(1, persons)


def _context(data: Records) -> ReleaseContext:
    return ReleaseContext(ATTRIBUTES, data.subset(np.arange(0, N, N // DONORS)[:DONORS]), torch.device("cpu"))


def _learnt(data: Records, persons: IntArray, members: int) -> tuple[torch.nn.Module, tuple[torch.Tensor, ...] | None]:
    cells, numbers = Cells.of(data, ATTRIBUTES, ())
    labels = [torch.from_numpy(cells.hidden[numbers]), torch.from_numpy(data.labels["u"])]
    return learn_classifier(
        torch.from_numpy(data.features), labels, cells, TRAINING,
        members=members, dropout=0.0, generator=torch_generator(stream(1, "fit")), run=TrainingContext(blocks=persons),
    )  # fmt: skip


def test_every_record_is_seen_by_a_member_that_learnt_from_nobody_like_it(data: Records, persons: IntArray) -> None:
    """By heart, a classifier is right about records of people it has learnt from; of others it knows the private class only."""
    single, none = _learnt(data, persons, 1)
    assert none is None
    truth = torch.from_numpy(data.labels["u"])
    with torch.inference_mode():
        by_heart = single.eval()(torch.from_numpy(data.features))[:, 2:].argmax(dim=1)
    assert float((by_heart == truth).float().mean()) > 0.95, "the control: one classifier remembers"
    _, heads = _learnt(data, persons, 4)
    assert heads is not None
    private, useful = heads
    assert float((private.argmax(dim=1) == torch.from_numpy(data.labels["s"])).float().mean()) > 0.95
    assert float((useful.argmax(dim=1) == truth).float().mean()) < 0.65
    # And their temperatures say so: a record is seen no surer than it can be known.
    assert float(F.cross_entropy(useful, truth)) < np.log(2) + 0.1


def _fit(data: Records, blocks: IntArray, **settings: object) -> tuple[FittedChannel, TransportConfig, ReleaseContext]:
    config, context = dataclasses.replace(TransportConfig(epsilon=0.1), **settings), _context(data)  # type: ignore[arg-type]
    fitted, _ = fit_method(
        METHOD, data, blocks, context=context, config=config, training=dataclasses.replace(TRAINING, epochs=5),
        rng_for=lambda *labels: stream(1, *labels), run=TrainingContext(),
    )  # fmt: skip
    assert isinstance(fitted, FittedChannel)
    return fitted, config, context


def test_a_model_of_several_classifiers_is_saved_and_restored(data: Records, persons: IntArray, tmp_path: Path) -> None:
    fitted, config, context = _fit(data, persons, classifiers=3)
    assert {name for name in fitted.figures if name.endswith("_u")} == {
        "held_out_accuracy_u", "held_out_log_loss_u", "held_out_calibration_error_u",
    }  # fmt: skip
    save_model(tmp_path, "transport_substitution", fitted, context, config=config, training=TRAINING, pool_digest="-")
    restored = restore_model(tmp_path, context).channel
    assert restored is not None
    for (_, ours), (_, theirs) in zip(fitted.channel.blocks(data.features), restored.blocks(data.features), strict=True):
        assert np.array_equal(ours, theirs)


def test_more_classifiers_than_people_are_refused(data: Records) -> None:
    with pytest.raises(ConfigError, match="classifiers: expected at least 3 blocks of training records, one for each, found 2"):
        _fit(data, np.arange(N) // (N // 2), classifiers=3)


def test_donors_of_the_likeliest_class_keep_one_that_is_hard_to_read() -> None:
    """A draw from its posterior, which is what a useful weight of 1 gives, is hardly better than guessing the commoner class."""
    rng = stream(3, "hard to read")
    labels = {"s": rng.integers(0, 2, 2000), "u": (rng.random(2000) < 0.75).astype(np.int64)}
    x = rng.normal(0, 1, (2000, 12)).astype(np.float32)
    x[:, 0] += 4 * labels["s"]
    x[:, 1] += 2 * labels["u"]
    train, test = (Records(x, labels).subset(rows) for rows in np.split(np.arange(2000), 2))
    guess, right = test.labels["u"].mean(), {}
    for weight in (1.0, 4.0):
        fitted, _, _ = _fit(train, np.arange(1000), useful_weight=weight)
        joints = [channel_law(fitted.channel, part.features, part.labels, ATTRIBUTES).joint for part in (train, test)]
        right[weight] = rule_accuracy(joints[0]["u"], joints[1]["u"])
        assert rule_accuracy(joints[0]["s"], joints[1]["s"]) < 0.58
    assert right[1.0] < guess + 0.05, "the control: there is something to gain"
    assert right[4.0] > right[1.0] + 0.03
    assert right[4.0] > guess + 0.05
