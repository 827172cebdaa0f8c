"""A protector audited on the hold-out of another one: champion and candidate are compared on the same records."""

import numpy as np

from pass_core.auditing.findings import AuditFindings
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import DrawnRelease, Part, Split, make_subject
from pass_core.channel.draws import experiment_key
from pass_core.channel.substitution import Channel
from pass_core.data import IntArray
from pass_core.devices import resolve_device
from pass_core.errors import MethodError
from pass_core.randomness import stream
from tasks.audits.controls import KeptControls
from tasks.audits.release import channel_of
from tasks.config import Config
from tasks.release.draw import KeyedRelease
from tasks.release.protector import read_protector
from tasks.running.layout import Layout
from tasks.running.numerics import fixed_numerics
from tasks.running.step_io import Reporter, RunKey
from tasks.storage.parquet import FEATURES, SPLITS, TableInfo, array_of, read_features


def audit_on(hold_out: Layout, protects: Layout, key: RunKey, config: Config, progress: Reporter) -> AuditFindings:
    """Attacks what the protector below `protects` releases for the records below `hold_out`, as the step audit does.

    Attackers learn from the training records of the hold-out's root, whatever the protector learnt from.
    """
    folder, pool = hold_out.artefact("features", key), protects.artefact("pool", key)
    section = config.dataset[key.dataset]
    known = TableInfo.same_features(folder, pool)
    features, attributes = read_features(folder, section.attributes(known.classes)), section.attributes(known.classes)
    own = section.attributes(TableInfo.load(pool).classes)
    protector = read_protector(protects.artefact("model", key), pool, own, resolve_device(config.compute.device))
    if protector.fitted.channel is None:
        raise MethodError(
            f"expected a method that releases donors' records, found {key.method}; choose another (docs/methods.md)"
        )
    whole = Part(features.records, np.unique(np.array(features.persons), return_inverse=True)[1], features.blocks)
    rows = {split: features.rows(split) for split in SPLITS}
    keyed = KeyedRelease(run=key, model=protector.model_digest, forbid=config.pool.forbid, key=experiment_key(config.seed))

    def channel(split: Split, chosen: IntArray) -> Channel:
        return channel_of(protector, features, rows[split][chosen], config.pool.forbid)

    def drawn(split: Split) -> IntArray:
        ids = [features.record_ids[row] for row in rows[split]]
        return keyed.donors(channel(split, np.arange(len(ids))), features.records.features[rows[split]], ids)

    def rng_for(stage: str, *labels: str) -> np.random.Generator:
        """The streams of the step audit: controls are the same, and are not learnt again."""
        return stream(config.seed, "audit", key.dataset if stage == "unprotected" else str(key), stage, *labels)

    audit = config.audit
    with fixed_numerics(config.compute.threads):
        subject = make_subject(
            attributes=attributes,
            train=whole.subset(rows["train"]),
            test=whole.subset(rows["test"]),
            release=DrawnRelease(
                channel=channel,
                donor_features=array_of(protector.pool, FEATURES, protector.info.feature_shape),
                drawn_test=drawn("test"),
                drawn_train=drawn("train"),
                fresh_draws=audit.depth.fresh_draws,
                rng=rng_for("release"),
            ),
            recipient=config.attacker,
        )
        return run_audit(
            subject, audit.named_attacks(), audit.thresholds, audit.depth, rng_for,
            on_attack=lambda work, epoch: progress(f"audit champion, {work}", epoch.number, epoch.total),
            effort=audit.effort, keep=KeptControls(hold_out.cache / "controls"),
        )  # fmt: skip
