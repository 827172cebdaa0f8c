"""Adversarial methods fool the adversaries they are trained against, and a fresh attacker reads what they could not."""

import numpy as np
import pytest
import torch
from safetensors.torch import load, save

from pass_core.data import Records
from pass_core.errors import ConfigError, MethodError
from pass_core.methods import adv, bdq, gap, identity, mass, msda, ppdar, spact
from pass_core.methods.adversarial.players import FittedGenerator, GameConfig
from pass_core.methods.base import Adversarial, Method, RecordMaker, ReleaseContext
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.loop import TrainConfig
from pass_core.training.parallel import World
from tests.pass_core.methods.planted import S, U, advantage, attacker_advantage, planted, setting_of

VECTORS, WINDOWS, IMAGES = (32,), (2, 32), (3, 32, 32)
TRAINING = TrainConfig(epochs=20, batch_size=64, learning_rate=0.003)
METHODS = {
    "adv": (adv.METHOD, adv.AdvConfig()),
    "gap": (gap.METHOD, gap.GapConfig()),
    "msda": (msda.METHOD, msda.MsdaConfig()),
    "bdq": (bdq.METHOD, bdq.BdqConfig()),
    "ppdar": (ppdar.METHOD, ppdar.PpdarConfig()),
    "mass": (mass.METHOD, mass.MassConfig()),
}
OTHERS = {
    "spact": (spact.METHOD, spact.SpactConfig()),
    "msda's autoencoder": (msda.METHOD, msda.MsdaConfig(encoder="autoencoder", latent=8)),
    "bdq's encoder": (bdq.METHOD, bdq.BdqConfig(encoder="bdq")),
}


def _fit(name: str, train: Records, training: TrainConfig = TRAINING, run: TrainingContext | None = None) -> FittedGenerator:
    method, config = (METHODS | OTHERS)[name]
    fitted = method.fit(
        train, context=setting_of(train), config=config, training=training, rng=stream(1, "fit"), run=run or TrainingContext()
    )
    assert isinstance(fitted, FittedGenerator)
    assert isinstance(fitted, Adversarial)
    return fitted


def _own_advantage(fitted: FittedGenerator, test: Records) -> float:
    """NAG-Protector: of the adversary that the generator was trained against."""
    told = fitted.adversaries["s"].probabilities(fitted.transform(test.features, stream(3, "own")))
    return advantage(told.argmax(axis=1), test.labels["s"])


@pytest.mark.parametrize("name", METHODS)
def test_own_adversary_is_fooled_and_a_fresh_attacker_is_not(name: str) -> None:
    train, test = planted(VECTORS, 600), planted(VECTORS, 600, seed=1)
    fitted = _fit(name, train)
    own, fresh = _own_advantage(fitted, test), attacker_advantage(fitted, train, test, S)
    assert own < 0.35
    assert fresh > own + 0.1
    assert fresh > 0.3
    assert attacker_advantage(fitted, train, test, U) > 0.6


def test_adversary_and_attacker_read_originals() -> None:
    """The control of the test above: without a generator that learns, the same adversary reads the class."""
    train, test = planted(VECTORS, 600), planted(VECTORS, 600, seed=1)
    config = adv.AdvConfig(penalty=0.0)  # nothing asks the generator to hide anything
    careless = adv.METHOD.fit(
        train, context=setting_of(train), config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext()
    )
    assert _own_advantage(careless, test) > 0.8
    assert attacker_advantage(RecordMaker(identity.unchanged, {}), train, test, S) > 0.8


def test_spact_uses_no_private_label_and_hides_little() -> None:
    train, test = planted(VECTORS, 600), planted(VECTORS, 600, seed=1)
    method, config = OTHERS["spact"]
    without = Records(train.features, {"u": train.labels["u"]})
    setting = ReleaseContext((U,), without.subset(np.arange(60)), torch.device("cpu"))
    fitted = method.fit(without, context=setting, config=config, training=TRAINING, rng=stream(1, "fit"), run=TrainingContext())
    assert isinstance(fitted, FittedGenerator)
    assert not fitted.adversaries
    assert attacker_advantage(fitted, train, test, U) > 0.6
    assert attacker_advantage(fitted, train, test, S) > 0.3


@pytest.mark.parametrize("shape", [VECTORS, WINDOWS, IMAGES], ids=["vectors", "windows", "images"])
@pytest.mark.parametrize("name", METHODS | OTHERS)
def test_every_shape_is_released_and_restored(name: str, shape: tuple[int, ...]) -> None:
    if name == "bdq's encoder" and shape == VECTORS:
        pytest.skip("refused, see below")
    train = planted(shape, 96)
    told: list[Epoch] = []
    fitted = _fit(name, train, TrainConfig(epochs=1, batch_size=32), TrainingContext(told.append))
    released = fitted.transform(train.features, stream(2, "t"))
    assert released.shape == train.features.shape
    assert np.isfinite(released).all()
    if shape == IMAGES and name != "bdq's encoder":
        assert released.min() >= train.features.min() - 1e-6
        assert released.max() <= train.features.max() + 1e-6
    if "encoder" not in name:
        assert (released != fitted.transform(train.features, stream(3, "t"))).any()  # other noise
    assert len(told) == 1
    method, config = (METHODS | OTHERS)[name]
    restored = method.from_state_dict(load(save(fitted.state_dict())), setting_of(train), config)
    assert (restored.transform(train.features, stream(2, "t")) == released).all()
    for attribute, adversary in fitted.adversaries.items():
        assert (restored.adversaries[attribute].probabilities(released) == adversary.probabilities(released)).all()


def test_model_without_its_attributes_still_transforms() -> None:
    """As MLflow loads it."""
    train = planted(VECTORS, 96)
    fitted = _fit("mass", train, TrainConfig(epochs=1, batch_size=32))
    restored = mass.METHOD.from_state_dict(fitted.state_dict(), setting_of(train, attributes=()), METHODS["mass"][1])
    assert (restored.transform(train.features, stream(2, "t")) == fitted.transform(train.features, stream(2, "t"))).all()


def test_unit_length_vectors_stay_so() -> None:
    train = planted(VECTORS, 96)
    unit = Records(train.features / np.linalg.norm(train.features, axis=1, keepdims=True), train.labels)
    released = _fit("adv", unit, TrainConfig(epochs=1, batch_size=32)).transform(unit.features, stream(2, "t"))
    assert np.linalg.norm(released, axis=1) == pytest.approx(np.ones(96), abs=1e-5)


def test_ppdar_trains_as_many_adversaries_as_it_says() -> None:
    train = planted(VECTORS, 96)
    method, config = ppdar.METHOD, ppdar.PpdarConfig(adversaries=3)
    fitted = method.fit(
        train, context=setting_of(train), config=config, training=TrainConfig(1, 32), rng=stream(1, "fit"), run=TrainingContext()
    )
    first_layers = [value for name, value in fitted.state_dict().items() if name.endswith("network.0.weight")]
    assert [len(layer) for layer in first_layers] == [512, 256, 384]
    told = fitted.adversaries["s"].probabilities(train.features)
    assert told.sum(axis=1) == pytest.approx(np.ones(96))


def test_held_out_records_are_not_learnt_from() -> None:
    train = planted(VECTORS, 96)
    changed = train.features.copy()
    changed[64:] += 100
    held_out = np.arange(64, 96)
    released = [
        _fit("gap", Records(x, train.labels), TrainConfig(1, 32), TrainingContext(held_out=held_out)).transform(
            train.features, stream(2, "t")
        )
        for x in (train.features, changed)
    ]
    assert (released[0] == released[1]).all()


@pytest.mark.parametrize(
    ("method", "config", "shape", "message"),
    [
        (bdq.METHOD, bdq.BdqConfig(encoder="bdq"), VECTORS, "expected windows or images"),
        (adv.METHOD, adv.AdvConfig(), (3, 24, 24), "multiples of 16"),
        (gap.METHOD, gap.GapConfig(), (2, 2, 2, 2), "expected vectors, windows"),
        (adv.METHOD, adv.AdvConfig(), (2, 8), "at least 16 points"),
    ],
)
def test_unsuitable_records_are_refused(method: Method, config: GameConfig, shape: tuple[int, ...], message: str) -> None:
    x = stream(1, "x").normal(size=(40, *shape)).astype(np.float32)
    data = Records(x, {"s": np.arange(40) % 2, "u": np.arange(40) % 3})
    with pytest.raises(MethodError, match=message):
        method.fit(
            data,
            context=setting_of(data, 20),
            config=config,
            training=TrainConfig(1, 20),
            rng=stream(1, "fit"),
            run=TrainingContext(),
        )


def test_missing_roles_and_several_processes_are_refused() -> None:
    train = planted(VECTORS, 96)
    for attributes, role in (((S,), "useful"), ((U,), "private")):
        with pytest.raises(MethodError, match=f"at least one {role} attribute"):
            adv.METHOD.fit(
                train,
                context=setting_of(train, attributes=attributes),
                config=adv.AdvConfig(),
                training=TRAINING,
                rng=stream(1, "fit"),
                run=TrainingContext(),
            )
    with pytest.raises(MethodError, match=r"compute\.processes"):
        _fit("adv", train, run=TrainingContext(world=World(0, 2)))


@pytest.mark.parametrize(
    ("config_type", "wrong"),
    [
        (adv.AdvConfig, {"budget": -1.0}),
        (gap.GapConfig, {"distortion": 0.0}),
        (gap.GapConfig, {"penalty_growth": 0.5}),
        (gap.GapConfig, {"penalty_at_most": 1.0}),
        (msda.MsdaConfig, {"useful_weight": -1.0}),
        (msda.MsdaConfig, {"encoder": "bdq"}),
        (bdq.BdqConfig, {"encoder": "autoencoder"}),
        (ppdar.PpdarConfig, {"adversaries": 5}),
        (mass.MassConfig, {"contrast_temperature": 0.0}),
        (spact.SpactConfig, {"contrast_weight": -1.0}),
    ],
)
def test_configs_name_what_is_wrong(config_type: type, wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        config_type(**wrong)


def test_classifiers_learn_from_originals_half_as_long_as_the_game() -> None:
    assert [GameConfig().classifier_epochs(epochs) for epochs in (1, 8, 200, 2000)] == [1, 4, 100, 100]
    assert GameConfig(pretraining_epochs=0).classifier_epochs(200) == 0
