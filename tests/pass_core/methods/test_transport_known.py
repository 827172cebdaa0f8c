"""Transport hides the private class also from people who know another attribute of every record."""

import dataclasses
from collections.abc import Mapping

import numpy as np
import pytest
import torch

from pass_core.channel.joint_law import channel_law, mutual_information
from pass_core.channel.substitution import Exclusion, channel_of_records
from pass_core.data import Attribute, DoubleArray, IntArray, Records, combinations
from pass_core.errors import ConfigError, MethodError
from pass_core.methods.base import FittedChannel, ReleaseContext, known_attributes
from pass_core.methods.transport.cells import Cells, what_can_be_hidden
from pass_core.methods.transport.channel import TransportConfig
from pass_core.methods.transport.notes import not_hidden
from pass_core.methods.transport.projections import Anderson
from pass_core.methods.transport_substitution import METHOD
from pass_core.randomness import stream
from pass_core.training.context import TrainingContext
from pass_core.training.epochs import Epoch
from pass_core.training.loop import TrainConfig

TRAINING = TrainConfig(epochs=30, batch_size=128, learning_rate=0.003)
CONFIG = TransportConfig(epsilon=0.1, rounds=300, tolerance=1e-3)
PERSONS, RECORDS, DONORS = 40, 1600, 300
ATTRIBUTES = (
    Attribute("s", ("a", "b"), "private"),
    Attribute("u", ("a", "b", "c"), "useful"),
    Attribute("age", ("20", "30", "40", "90"), "general"),
    Attribute("accent", ("x", "y", "z"), "general"),
    Attribute("person", tuple(map(str, range(PERSONS))), "general"),
)


def _data(seed: int) -> Records:
    """Persons have a voice, a private class, an age and an accent: whose donor it is says how old its person is, and so on.

    Everybody of 90 is of one private class.
    """
    people, rng = stream(1, "people"), stream(seed, "records")
    s = np.arange(PERSONS) % 3 == 0
    age, accent = people.integers(0, 3, PERSONS), people.integers(0, 3, PERSONS)
    age[~s & (np.arange(PERSONS) % 7 == 0)] = 3
    person = np.arange(RECORDS) % PERSONS
    labels = {
        "s": s.astype(np.int64)[person],
        "u": np.arange(RECORDS) // PERSONS % 3,
        "age": age[person],
        "accent": accent[person],
    }
    x = rng.normal(0, 0.3, (RECORDS, 18))
    x[:, :8] += people.normal(0, 1.5, (PERSONS, 8))[person]
    x[:, 8] += 2 * labels["s"]
    x[:, 9:12] += 2 * np.eye(3)[labels["u"]]
    x[:, 12:15] += 1.5 * np.eye(4)[labels["age"]][:, :3]
    x[:, 15:18] += 1.5 * np.eye(3)[labels["accent"]]
    return Records(x.astype(np.float32), {**labels, "person": person})


TRAIN = _data(1)


def _context(known: tuple[str, ...], attributes: tuple[Attribute, ...] = ATTRIBUTES, data: Records = TRAIN) -> ReleaseContext:
    return ReleaseContext(attributes, data.subset(np.arange(DONORS)), torch.device("cpu"), known=known)


def _fit(
    context: ReleaseContext, data: Records = TRAIN, config: TransportConfig = CONFIG, run: TrainingContext | None = None
) -> FittedChannel:
    return METHOD.fit(data, context=context, config=config, training=TRAINING, rng=stream(1, "fit"), run=run or TrainingContext())


def _rows(fitted: FittedChannel, data: Records = TRAIN) -> DoubleArray:
    return np.concatenate([p for _, p in fitted.channel.blocks(data.features)]).astype(np.float64)


def _information(rows: DoubleArray, known: IntArray | None = None) -> float:
    """I(X';S|known) of these rows of P, nats."""
    known = np.zeros(len(rows), dtype=np.int64) if known is None else known
    found = 0.0
    for label in np.unique(known):
        s = TRAIN.labels["s"][known == label]
        joint = np.stack([rows[known == label][s == c].sum(axis=0) for c in (0, 1)])
        found += (known == label).mean() * mutual_information(joint / joint.sum())
    return found


def _cost(fitted: FittedChannel, rows: DoubleArray) -> float:
    """Mean expected 1 − cos(φ(x), φ(x'))."""
    similarity = fitted.channel.neighbourhoods(torch.from_numpy(TRAIN.features)) @ fitted.channel.donors.T
    return float((rows * (1 - similarity.numpy())).sum(axis=1).mean())


@pytest.fixture(scope="module")
def epochs() -> list[Epoch]:
    return []


@pytest.fixture(scope="module")
def hidden(epochs: list[Epoch]) -> FittedChannel:
    return _fit(_context(("age", "accent")), run=TrainingContext(epochs.append))


@pytest.fixture(scope="module")
def plain() -> FittedChannel:
    return _fit(_context(()))


def test_who_knows_an_attribute_learns_no_more(hidden: FittedChannel) -> None:
    rows = _rows(hidden)
    assert _information(rows) <= 1e-3
    assert _information(rows, TRAIN.labels["age"]) <= 1e-3
    assert _information(rows, TRAIN.labels["accent"]) <= 1e-3


def test_control_who_knows_an_attribute_learns_the_private_class_where_it_was_not_declared(plain: FittedChannel) -> None:
    rows = _rows(plain)
    assert _information(rows) <= 1e-3
    assert _information(rows, TRAIN.labels["age"]) > 0.02
    assert _information(rows, TRAIN.labels["accent"]) > 0.02


def test_every_constraint_is_reported_and_all_must_hold_before_the_rounds_stop(
    epochs: list[Epoch], hidden: FittedChannel
) -> None:
    del hidden  # its fit filled the epochs
    first, last = epochs[0].terms, epochs[-1].terms
    gaps = [last["gap"], *(last[f"gap_given_{known}"] for known in ("age", "accent", "age and accent"))]
    assert last["total"] == max(gaps)
    assert last["total"] <= CONFIG.tolerance or epochs[-1].number == CONFIG.rounds
    assert first["private_information_given_age"] > 0.1
    assert last["private_information_given_age"] < 1e-3


def test_who_knows_several_attributes_together_learns_no_more(plain: FittedChannel, hidden: FittedChannel) -> None:
    both = combinations([TRAIN.labels["age"], TRAIN.labels["accent"]])
    assert _information(_rows(hidden), both) < 2e-3
    assert _information(_rows(plain), both) > 0.02  # control: nothing was declared


def test_hiding_from_more_people_costs_no_less(plain: FittedChannel, hidden: FittedChannel) -> None:
    from_one = _fit(_context(("age",)))
    costs = [_cost(each, _rows(each)) for each in (plain, from_one, hidden)]
    assert costs[0] <= costs[1] + 1e-3
    assert costs[1] <= costs[2] + 1e-3


def test_combinations_of_few_records_are_not_hidden_together_and_this_is_said() -> None:
    some = TRAIN.subset(np.arange(200))  # enough for each age and each accent, not for both
    single = {each.known: each.problem for each in what_can_be_hidden(some.labels, ATTRIBUTES, ("age", "accent"))}
    assert (single["age"], single["accent"]) == (None, None)
    assert single["age and accent"] is not None
    persons = [str(k) for k in some.labels["person"]]
    more = TRAIN.subset(np.arange(900))  # enough for both, not for the useful class, too
    with_useful = what_can_be_hidden(more.labels, ATTRIBUTES, ("u", "age", "accent"))[-1]
    assert (with_useful.jointly, with_useful.problem) == (("age", "accent"), None)
    *_, note = not_hidden(some.labels, ATTRIBUTES, ("age", "accent"), persons)
    assert "people who know age and accent together: it has fewer than 20 records" in note


def test_a_class_with_one_private_class_is_named_and_identities_make_no_cells() -> None:
    found = {each.known: each for each in what_can_be_hidden(TRAIN.labels, ATTRIBUTES, ("u", "age", "accent", "person"))}
    assert found["age"].settled == (3,)
    assert found["age"].problem is None
    assert found["accent"].settled == found["u"].settled == ()
    assert found["person"].problem == "each of its classes has one private class only"
    rare = {**TRAIN.labels, "accent": np.arange(RECORDS) // 16}
    (found_rare,) = what_can_be_hidden(rare, ATTRIBUTES, ("accent",))
    assert "fewer than 20 records" in str(found_rare.problem)


def test_a_useful_attribute_that_shares_information_with_the_private_one_makes_no_cells() -> None:
    """Equal donors of all private classes, alone and within each useful class, would be equal donors of all useful classes."""
    entangled = {**TRAIN.labels, "u": np.where(TRAIN.labels["u"] == 2, TRAIN.labels["s"], TRAIN.labels["u"])}
    for labels, problem in ((entangled, True), (TRAIN.labels, False)):
        (found,) = what_can_be_hidden(labels, ATTRIBUTES, ("u",))
        assert ("would remove it" in str(found.problem)) == problem


def test_what_cannot_be_hidden_leaves_the_rest_alone() -> None:
    assert torch.equal(_fit(_context(("person",))).channel.potentials, _fit(_context(())).channel.potentials)


def test_release_of_an_unseen_record_equals_the_formula(hidden: FittedChannel) -> None:
    """P(d|x) = Σ p(cell|x) softmax(k + v_cell) over the likeliest cells, from the classifier's outputs alone."""
    channel, x = hidden.channel, torch.from_numpy(_data(2).features[:5])
    cells = channel.cells
    with torch.inference_mode():
        logits = channel.classifier.eval()(x)
        of_cells, useful = logits[:, : cells.n_hidden].softmax(dim=1), logits[:, cells.n_hidden :].log_softmax(dim=1)
        kernel = channel.neighbourhoods(x) @ channel.donors.T / CONFIG.epsilon + useful[:, channel.useful_donors[0]]
        expected = torch.zeros(5, DONORS)
        for row in range(5):
            likely = of_cells[row].topk(CONFIG.likeliest)
            for share, cell in zip(likely.values / likely.values.sum(), likely.indices, strict=True):
                v = channel.potentials[int(np.flatnonzero(cells.hidden == int(cell))[0])]
                expected[row] += share * (kernel[row] + v).softmax(dim=0)
    released = np.concatenate([p for _, p in channel.blocks(x.numpy())])
    assert released == pytest.approx(expected.numpy(), abs=1e-5)


def test_a_known_useful_class_needs_no_further_output() -> None:
    """p(cell|x) = p(S, general|x) p(U|x): the classifier already has the second."""
    fitted = _fit(_context(("u",)))
    cells = fitted.channel.cells
    assert (len(cells), cells.n_hidden) == (6, 2)
    assert _information(_rows(fitted), TRAIN.labels["u"]) <= 1e-3
    seen = fitted.channel.look_at(torch.from_numpy(TRAIN.features[:9]))
    assert fitted.channel.log_cells(seen).exp().sum(dim=1).numpy() == pytest.approx(np.ones(9), abs=1e-5)


CARRYING = dataclasses.replace(CONFIG, carried=("age", "accent"))


@pytest.fixture(scope="module")
def carrying() -> FittedChannel:
    return _fit(_context(("age", "accent")), config=CARRYING)


def _released(fitted: FittedChannel, data: Records, labels: Mapping[str, IntArray]) -> DoubleArray:
    channel = channel_of_records(fitted.channel, labels, None)
    return np.concatenate([p for _, p in channel.blocks(data.features)]).astype(np.float64)


def test_classes_that_records_carry_hide_as_well_as_guessed_ones(carrying: FittedChannel) -> None:
    rows = _released(carrying, TRAIN, TRAIN.labels)
    for known in (None, TRAIN.labels["age"], TRAIN.labels["accent"]):
        assert _information(rows, known) <= 1e-3


def test_carried_classes_select_the_cells_of_an_unseen_record(carrying: FittedChannel) -> None:
    """P(d|x) = Σ_s p(s|x, age, accent) softmax(k + v_cell), from the classifier's outputs alone."""
    data, channel = _data(2).subset(np.arange(1100)), carrying.channel  # more than one block
    labels = {"age": np.roll(data.labels["age"], 1), "accent": data.labels["accent"]}  # most not those that are guessed
    cells, x = channel.cells, torch.from_numpy(data.features)
    with torch.inference_mode():
        logits = channel.classifier.eval()(x)
        guessed = logits[:, : cells.n_hidden].softmax(dim=1)[:, cells.hidden].double().numpy()
        useful = logits[:, cells.n_hidden :].log_softmax(dim=1)[:, channel.useful_donors[0]]
        kernel = channel.neighbourhoods(x) @ channel.donors.T / CONFIG.epsilon + useful
        agree = np.all([labels[name][:, None] == cells.classes(name) for name in labels], axis=0)
        assert agree.sum(axis=1).max() == 2  # one for every private class
        agree |= ~agree.any(axis=1, keepdims=True)  # a combination that never occurred is guessed
        shares = np.where(agree, guessed, 0)
        shares[shares < np.sort(shares, axis=1)[:, [-CONFIG.likeliest]]] = 0
        shares /= shares.sum(axis=1, keepdims=True)
        of_cells = (kernel[:, None] + channel.potentials).softmax(dim=2).double().numpy()
    assert _released(carrying, data, labels) == pytest.approx(np.einsum("nc,ncd->nd", shares, of_cells), abs=1e-5)


def test_a_record_without_its_carried_class_is_rejected(carrying: FittedChannel) -> None:
    for labels in ({}, {"age": TRAIN.labels["age"]}):
        with pytest.raises(MethodError, match=r"carried: expected the class of .*accent with every record, found none; give it"):
            _released(carrying, TRAIN, labels)
    with pytest.raises(ConfigError, match="carried: expected attributes that the recipient knows, found s; name them under"):
        _fit(_context(("age",)), config=dataclasses.replace(CONFIG, carried=("s",)))


def test_what_is_left_is_reported_in_words_and_no_class_is_in_them(hidden: FittedChannel) -> None:
    assert hidden.notes == ()
    (alone, age) = _fit(_context(("age",)), config=dataclasses.replace(CONFIG, rounds=1)).notes
    assert "anybody still learns 0." in alone
    assert "nats of s from training records, above the limit of 0.001: raise rounds or epsilon" in alone
    assert "after 2 rounds, who knows age still learns 0." in age
    allowed = dataclasses.replace(CONFIG, rounds=1, residual=0.69)
    assert _fit(_context(("age",)), config=allowed).notes == ()
    persons = [str(number) for number in TRAIN.labels["person"]]
    settled, person = not_hidden(TRAIN.labels, ATTRIBUTES, ("age", "person"), persons)
    assert settled == (
        "nothing can hide the private attributes from people who know age in classes where all records have the same private "
        "class: 90"
    )
    assert "each of its classes has one private class only" in person
    alone_of_it = ["one" if age_ == 3 else "others" for age_ in TRAIN.labels["age"]]
    assert not_hidden(TRAIN.labels, ATTRIBUTES, ("age",), alone_of_it)[0].endswith("class 4")  # it would name a person


def test_not_carried_known_attributes_are_guessed(hidden: FittedChannel) -> None:
    assert np.array_equal(_released(hidden, TRAIN, {"age": np.zeros(RECORDS, dtype=np.int64)}), _rows(hidden))


def test_model_survives_saving_and_the_withdrawal_of_donors(hidden: FittedChannel) -> None:
    state, context = hidden.state_dict(), _context(())
    assert np.array_equal(_rows(METHOD.from_state_dict(state, context, CONFIG)), _rows(hidden))
    kept = np.arange(10, DONORS)
    fewer = METHOD.without_donors(state, kept)
    rest = dataclasses.replace(context, pool=context.pool.subset(kept))
    assert METHOD.from_state_dict(fewer, rest, CONFIG).channel.potentials.shape == (len(hidden.channel.cells), DONORS - 10)


def test_cells_that_never_occur_are_not_kept() -> None:
    cells, numbers = Cells.of(TRAIN, ATTRIBUTES, ("age", "accent"))
    assert len(cells) == len({tuple(row) for row in cells.table.tolist()}) == len(np.unique(numbers)) < 2 * 4 * 3
    assert [a.name for a in cells.known()] == ["age", "accent"]
    assert np.array_equal(cells.classes("age")[numbers], TRAIN.labels["age"])


def test_an_excluded_donor_gets_nothing() -> None:
    exclusion = Exclusion(np.arange(RECORDS), np.arange(DONORS))
    context = dataclasses.replace(_context(("age",)), exclusion=exclusion)
    fitted = _fit(context, config=dataclasses.replace(CONFIG, rounds=20))
    seen = fitted.channel.look_at(torch.from_numpy(TRAIN.features[:DONORS]), exclusion.subset(np.arange(DONORS)))
    assert float(fitted.channel.mixed(seen).diagonal().max()) == 0


def test_rounds_on_parts_of_the_records_hide_from_who_knows() -> None:
    fitted = _fit(_context(("age",)), config=TransportConfig(epsilon=0.1, rounds=150, tolerance=1e-5, records_per_round=800))
    assert _information(_rows(fitted), TRAIN.labels["age"]) < 0.01


def test_held_out_records_calibrate_the_classifier_and_are_reported() -> None:
    held_out = np.flatnonzero(np.arange(RECORDS) // PERSONS % 8 == 0)
    fitted = _fit(_context(("age",)), run=TrainingContext(held_out=held_out))
    figures = fitted.figures
    assert {name.rsplit("_", 1)[1] for name in figures} == {"s", "u", "age"}
    for name in ("s", "u", "age"):
        assert figures[f"held_out_accuracy_{name}"] > 0.9
        assert figures[f"held_out_calibration_error_{name}"] < 0.05
    assert _fit(_context(("age",)), config=dataclasses.replace(CONFIG, rounds=1)).figures == {}


def test_overconfident_posteriors_are_corrected() -> None:
    """Useful labels that are noise: a long training is sure of them, and the temperature takes that back."""
    rng = stream(5, "noise")
    data = Records(TRAIN.features, {**TRAIN.labels, "u": rng.integers(0, 3, RECORDS)})
    config = dataclasses.replace(CONFIG, rounds=1)
    fitted = _fit(_context((), data=data), data, config, TrainingContext(held_out=np.arange(1400, RECORDS)))
    assert fitted.figures["held_out_log_loss_u"] < np.log(3) + 0.02
    assert fitted.figures["held_out_calibration_error_u"] < 0.15


def test_acceleration_reaches_a_fixed_point_sooner() -> None:
    """On a linear map that contracts slowly; plain steps are far after as many."""
    shrink = torch.linspace(0.5, 0.98, 12, dtype=torch.float64).reshape(3, 4)
    goal, plain = torch.ones(3, 4, dtype=torch.float64), torch.zeros(3, 4, dtype=torch.float64)
    accelerated, at = Anderson(torch.ones(3, 1, dtype=torch.float64)), torch.zeros(3, 4, dtype=torch.float64)
    for _ in range(30):
        at = accelerated.step(at, (1 - shrink) * (goal - at))
        plain = plain + (1 - shrink) * (goal - plain)
    assert float((at - goal).abs().max()) < 1e-3
    assert float((plain - goal).abs().max()) > 0.1


def test_declared_knowledge_becomes_known_attributes() -> None:
    assert known_attributes(ATTRIBUTES, None) == ("u",)
    assert known_attributes(ATTRIBUTES, ("s", "age")) == ("age",)
    assert known_attributes(ATTRIBUTES, (), released=("u",)) == ("u",)
    with pytest.raises(ConfigError, match=r"attacker\.knows: expected attributes of the data set .* found height"):
        known_attributes(ATTRIBUTES, ("height",))


def test_the_law_of_the_release_is_the_one_that_the_audit_computes(hidden: FittedChannel) -> None:
    law = channel_law(hidden.channel, TRAIN.features, TRAIN.labels, ATTRIBUTES)
    assert mutual_information(law.joint["s"]) == pytest.approx(_information(_rows(hidden)), abs=1e-5)
