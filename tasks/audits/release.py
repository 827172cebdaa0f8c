"""The audit's subject for a release of this pipeline, read from its files."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pass_core.auditing.analyses.seed_replay import Replay, find_replay
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.subject import ColumnValues, DrawnRelease, MadeRelease, Part, Received, Subject, make_subject
from pass_core.channel.pool import Forbidden
from pass_core.channel.substitution import Channel
from pass_core.data import Attribute, FloatArray, IntArray
from pass_core.errors import ChecksumMismatch
from pass_core.methods.base import Adversarial
from tasks.audits.received import make_received, received_partitions
from tasks.audits.received_columns import value_ranks
from tasks.lakes.open import value_type
from tasks.payloads.payload import payload_bytes
from tasks.release.draw import draw_scope
from tasks.release.protector import STAMP, Protector
from tasks.running.step_io import StepIO
from tasks.storage import parquet
from tasks.storage.parquet import FEATURES, PAYLOAD, PERSON, RECORD_ID, SPLIT, SPLITS, FeatureTable, array_of


def release_subject(
    features: FeatureTable,
    attributes: tuple[Attribute, ...],
    protector: Protector,
    *,
    fresh_draws: int,
    forbid: Forbidden,
    recipient: Recipient,
    io: StepIO,
) -> Subject:
    """The subject of an audit of what `substitute` released."""
    names, persons = np.unique(np.array(features.persons), return_inverse=True)
    whole = Part(features.records, persons, features.blocks)
    rows = {split: features.rows(split) for split in SPLITS}
    place = {features.record_ids[row]: k for k, row in enumerate(rows["train"])}
    train, test = (whole.subset(rows[split]) for split in SPLITS)
    linked = {split: _Linked.read(features, split, io) for split in SPLITS}
    release: DrawnRelease | MadeRelease
    if protector.fitted.channel is None:
        made = {name: array_of(one.released, PAYLOAD, protector.info.feature_shape)[one.rows] for name, one in linked.items()}
        release = MadeRelease(
            (made["test"],),
            lambda draw: protector.fitted.transform(train.records.features, io.rng("release", str(draw % fresh_draws))),
        )
    else:
        donors, drawn = protector.pool.column(RECORD_ID).to_pylist(), {k: one.drawn(protector, io) for k, one in linked.items()}
        shown = array_of(protector.pool, FEATURES, protector.info.feature_shape)
        made = {name: shown[chosen] for name, chosen in drawn.items()}
        release = DrawnRelease(
            channel=lambda split, chosen: channel_of(protector, features, rows[split][chosen], forbid),
            donor_features=shown,
            drawn_test=drawn["test"],
            drawn_train=drawn["train"],
            # Donors are training records, so every one of their persons is among the names.
            donor_persons=np.searchsorted(names, np.array(protector.pool.column(PERSON).to_pylist())),
            donor_rows=np.array([place.get(donor, -1) for donor in donors], dtype=np.int64),
            fresh_draws=fresh_draws,
            rng=io.rng("release"),
        )
    passed = parquet.read_folder(io.inputs["features"], list(protector.info.pass_through))
    return make_subject(
        attributes=attributes,
        train=train,
        test=test,
        release=release,
        columns=column_values(passed, rows["train"], rows["test"]),
        learnt_from=_learnt_from(place, protector, io),
        own_adversaries=protector.fitted.adversaries if isinstance(protector.fitted, Adversarial) else {},
        recipient=recipient,
        received=_received(linked, (made["train"], made["test"]), io),
    )


def channel_of(protector: Protector, features: FeatureTable, rows: IntArray, forbid: Forbidden) -> Channel:
    """P(x'|x) of a protector that has a channel."""
    channel = protector.channel_for(features, rows, forbid)
    assert channel is not None  # noqa: S101 (callers have checked that the method has a channel)
    return channel


def replay_of(
    features: FeatureTable, subject: Subject, protector: Protector, *, forbid: Forbidden, stamp: str | None, io: StepIO
) -> Replay | None:
    """Whether the draws of this release follow from a seed that can be guessed."""
    if subject.substitution is None:
        return None
    channel = subject.substitution.channel("test", np.arange(len(subject.test)))
    rows, probabilities = next(channel.blocks(subject.test.records.features))
    return find_replay(
        probabilities,
        [features.record_ids[row] for row in features.rows("test")[rows]],
        subject.substitution.drawn[rows],
        [draw_scope(io.key, protector.model_digest, forbid)],
        claimed_secret=stamp != STAMP,
        more_seeds=[io.seed] if io.seed >= 0 else [],
    )


def column_values(table: pa.Table, train: IntArray, test: IntArray) -> dict[str, ColumnValues]:
    """Columns released beside the payload, for the table's rows of each split: ranks among the distinct values, missing last."""
    found = {}
    for name, column in zip(table.column_names, table.columns, strict=True):
        ranks = value_ranks(column.combine_chunks(), name)
        kind = value_type(column.type)
        texts = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        found[name] = ColumnValues(ranks[train], ranks[test], ordered=not texts)  # the order of texts has no meaning
    return found


def _learnt_from(place: Mapping[str, int], protector: Protector, io: StepIO) -> IntArray:
    """Positions among the training records of those that the protector learnt from, as training recorded them."""
    table, expected = parquet.read_table(io.inputs["trained_on"], [RECORD_ID, "model_digest"]), protector.model_digest
    found, record_ids = set(table.column("model_digest").to_pylist()), table.column(RECORD_ID).to_pylist()
    if found != {expected} or not place.keys() >= set(record_ids):
        raise ChecksumMismatch(
            f"{io.inputs['trained_on']}: expected training records that model {expected[:12]} learnt from, found records of "
            f"model {', '.join(sorted(model[:12] for model in found))} or other features; run train and substitute again"
        )
    return np.sort([place[record_id] for record_id in record_ids]).astype(np.int64)


@dataclass(frozen=True, slots=True)
class _Linked:
    """What was released for a split, and how it belongs to the records."""

    released: pa.Table
    donors: pa.ChunkedArray  # of the released rows; missing for methods without a pool
    rows: IntArray  # the released row of every record, in the records' order

    @classmethod
    def read(cls, features: FeatureTable, split: str, io: StepIO) -> "_Linked":
        links, released = parquet.read_table(io.inputs["linkage"]), parquet.read_partition(io.inputs["protected"], split)
        own = links.filter(pc.equal(links.column(SPLIT), split))
        position = dict(zip(own.column(RECORD_ID).to_pylist(), own.column("row").to_pylist(), strict=True))
        wanted = [features.record_ids[row] for row in features.rows(split)]
        if set(wanted) != set(position) or len(released) != len(wanted):
            raise ChecksumMismatch(
                f"{io.inputs['linkage']}: expected the {len(wanted)} {split} records of the features, found other records; "
                "run substitute again"
            )
        return cls(released, own.column("donor"), np.array([position[record_id] for record_id in wanted], dtype=np.int64))

    def drawn(self, protector: Protector, io: StepIO) -> IntArray:
        """The donor of every record; the released payloads must be the donors'."""
        expected, donors = payload_bytes(protector.pool.column(PAYLOAD)), self.donors.to_numpy()
        if [expected[donor] for donor in donors] != payload_bytes(self.released.column(PAYLOAD)):
            raise ChecksumMismatch(
                f"{io.inputs['protected']}: expected the drawn donors' payloads, found another payload; run substitute again"
            )
        drawn: IntArray = donors[self.rows]
        return drawn


def _received(linked: Mapping[str, _Linked], payloads: tuple[FloatArray, FloatArray], io: StepIO) -> Received:
    """What a recipient gets beside the meaning of payloads; a split is a partition with an order of its own."""
    paths = [parquet.shards(io.inputs["protected"] / f"{parquet.SPLIT}={split}", "*.parquet") for split in SPLITS]
    rows = received_partitions([linked[split].released for split in SPLITS], paths, PAYLOAD)
    train, test = (part.of(linked[split].rows) for part, split in zip(rows, SPLITS, strict=True))
    return make_received(train, test, payloads, together=False)
