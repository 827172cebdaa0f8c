"""What this pipeline released, as the audit sees it."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from pass_core.attacks.base import Adversary
from pass_core.auditing.findings import Replay
from pass_core.auditing.seed_replay import find_replay
from pass_core.auditing.subject import Part, Split, Subject, Substitution, with_combination
from pass_core.channel.joint_law import channel_law
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.errors import ChecksumMismatch
from pass_core.methods.base import Adversarial
from pass_core.randomness import stream
from pass_core.training.held_out import hold_out, learnt_from
from tasks.audits.released_columns import released_columns
from tasks.payloads.payload import payload_bytes
from tasks.release.protector import STAMP, Protector, draw_scope
from tasks.running.step_io import StepIO
from tasks.storage.parquet import FEATURES, PAYLOAD, PERSON, RECORD_ID, SPLIT, FeatureTable, array_of, read_folder, read_partition


def make_subject(
    features: FeatureTable,
    attributes: tuple[Attribute, ...],
    protector: Protector,
    links: pa.Table,
    draws: int,
    forbid: Forbidden,
    training: Mapping[str, Any],
    io: StepIO,
) -> Subject:
    """The subject of an audit; `training` is what model.json says of how the protector learnt."""
    rows = {split: features.rows(split) for split in ("train", "test")}
    attributes, train, test, combines = with_combination(attributes, *(features.subset(rows[s]) for s in ("train", "test")))
    names, persons = np.unique(np.array(features.persons), return_inverse=True)
    parts = {
        split: Part(records, persons[rows[split]], features.blocks[rows[split]])
        for split, records in (("train", train), ("test", test))
    }
    columns, (train_part, test_part) = released_columns(
        read_folder(io.inputs["features"], list(protector.info.pass_through)),
        attributes,
        (parts["train"], parts["test"]),
        (rows["train"], rows["test"]),
    )
    drawn = _drawn(features, protector, links, io)
    substitution: Substitution | None = None
    released_train: Callable[[int], FloatArray]
    if protector.fitted.channel is None:
        released_test = _made(features, protector, links, io)

        def released_train(draw: int) -> FloatArray:
            return protector.fitted.transform(train.features, io.rng("release", str(draw % draws)))
    else:
        donor_features = array_of(protector.pool, FEATURES, protector.info.feature_shape)
        released_test = donor_features[drawn["test"]]

        def channel(split: Split, chosen: IntArray) -> Channel:
            found = protector.channel_for(features, rows[split][chosen], forbid)
            assert found is not None  # noqa: S101 (the method has a channel)
            return found

        whole = channel("train", np.arange(len(train)))
        law = channel_law(whole, train.features, train.labels, attributes, rng=io.rng("release"), n_draws=draws)
        substitution = Substitution(
            channel,
            donor_features,
            _donor_persons(protector, names),
            _donor_rows(features, protector, rows["train"]),
            law,
            drawn["test"],
            drawn["train"],
        )

        def released_train(draw: int) -> FloatArray:
            released: FloatArray = donor_features[law.draws[draw % draws]]
            return released

    return Subject(
        attributes,
        train_part,
        test_part,
        released_test,
        released_train,
        substitution,
        _learnt_from(features, training, io),
        _own_adversaries(protector),
        combines,
        columns,
    )


def replay_of(
    features: FeatureTable, subject: Subject, protector: Protector, forbid: Forbidden, manifest: Mapping[str, Any], io: StepIO
) -> Replay | None:
    """Whether the draws of this release follow from a seed that can be guessed."""
    if subject.substitution is None:
        return None
    rows, probabilities = next(
        subject.substitution.channel("test", np.arange(len(subject.test))).blocks(subject.test.records.features)
    )
    return find_replay(
        probabilities,
        [features.record_ids[row] for row in features.rows("test")[rows]],
        subject.substitution.drawn[rows],
        [draw_scope(io.key, protector.model_digest, forbid)],
        claimed_secret=manifest.get("stamp") != STAMP,
        more_seeds=[io.seed] if io.seed >= 0 else [],
    )


def _own_adversaries(protector: Protector) -> Mapping[str, Adversary]:
    return protector.fitted.adversaries if isinstance(protector.fitted, Adversarial) else {}


def _learnt_from(features: FeatureTable, training: Mapping[str, Any], io: StepIO) -> IntArray:
    """Positions among the training records that the protector learnt from, found again as training chose them."""
    train = features.rows("train")
    blocks = features.blocks
    known = learnt_from(train, blocks[train], training.get("share", 1.0), stream(io.seed, "share", io.key.dataset))
    held_out = hold_out(blocks[known], training["validation_share"], stream(io.seed, "train", str(io.key), "validation"))
    return np.searchsorted(train, np.delete(known, held_out)).astype(np.int64)


def _donor_persons(protector: Protector, names: np.ndarray) -> IntArray:
    """The persons' numbers; donors are training records, so each has one."""
    numbers: IntArray = np.searchsorted(names, np.array(protector.pool.column(PERSON).to_pylist())).astype(np.int64)
    return numbers


def _donor_rows(features: FeatureTable, protector: Protector, train: IntArray) -> IntArray:
    place = {features.record_ids[row]: k for k, row in enumerate(train)}
    return np.array([place.get(record_id, -1) for record_id in protector.pool.column(RECORD_ID).to_pylist()], dtype=np.int64)


def _positions(features: FeatureTable, links: pa.Table, split: str, released: int, io: StepIO) -> IntArray:
    """Row of the release for every record of a split, in the records' order."""
    position = dict(zip(links.column(RECORD_ID).to_pylist(), links.column("row").to_pylist(), strict=True))
    wanted = [features.record_ids[row] for row in features.rows(split)]
    if set(wanted) != set(position) or released != len(wanted):
        raise ChecksumMismatch(f"{io.inputs['linkage']}: is of other records than the features; run substitute again")
    return np.array([position[record_id] for record_id in wanted], dtype=np.int64)


def _of_split(links: pa.Table, split: str) -> pa.Table:
    return links.filter(pa.compute.equal(links.column(SPLIT), split))


def _made(features: FeatureTable, protector: Protector, links: pa.Table, io: StepIO) -> FloatArray:
    """Test records that a method without a pool made, read from the protected files."""
    released = read_partition(io.inputs["protected"], "test")
    rows = _positions(features, _of_split(links, "test"), "test", len(released), io)
    return array_of(released, PAYLOAD, protector.info.feature_shape)[rows]


def _drawn(features: FeatureTable, protector: Protector, links: pa.Table, io: StepIO) -> dict[str, IntArray]:
    """Donors of what was really released, per split in the order of its records; the released payloads must be theirs."""
    if protector.fitted.channel is None:
        return {}
    expected = payload_bytes(protector.pool.column(PAYLOAD))
    drawn = {}
    for split in ("train", "test"):
        released, own = read_partition(io.inputs["protected"], split), _of_split(links, split)
        rows = _positions(features, own, split, len(released), io)
        donors: IntArray = own.column("donor").to_numpy()
        if [expected[donor] for donor in donors] != payload_bytes(released.column(PAYLOAD)):
            raise ChecksumMismatch(f"{io.inputs['protected']}: a released payload is not the drawn donor's; run substitute again")
        drawn[split] = donors[rows]
    return drawn
