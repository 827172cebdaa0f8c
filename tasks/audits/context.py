"""What an audit needs beside its subject: the configured attacks, and what the document reports beside the findings."""

import dataclasses

import numpy as np

import pass_core.attacks
from pass_core import discovery
from pass_core.auditing.subject import Subject
from pass_core.auditing.trained_attacks import NamedAttack
from tasks.audits.document import Context, Counts, limits_of
from tasks.sections.audit import AuditConfig


def named_attacks(config: AuditConfig) -> tuple[NamedAttack, ...]:
    """The attacks that params.yaml names, with their settings."""
    return tuple(NamedAttack(name, discovery.load(pass_core.attacks, name).ATTACK, c) for name, c in config.attacks.items())


def context_of(subject: Subject, config: AuditConfig, *, dataset: str, method: str, protected_digest: str) -> Context:
    """What every audit reports beside its findings; classes are numbered, not named."""
    parts = (subject.train, subject.test)
    return Context(
        dataset=dataset,
        method=method,
        basis="labelled",
        records=Counts(*(len(part) for part in parts)),
        persons=Counts(*(len(np.unique(part.persons)) for part in parts)),
        split="as the data set's",
        attack_settings={name: dataclasses.asdict(settings) for name, settings in config.attacks.items()},
        depth=config.depth,
        thresholds=limits_of(config.thresholds, "labelled"),
        classes={a.name: tuple(str(k + 1) for k in range(a.n_classes)) for a in subject.attributes},
        confusion=None,
        forbid=None,
        pass_through=tuple(column.attribute.name for column in subject.columns),
        stamp=None,
        model_digest=None,
        pool_digest=None,
        protected_digest=protected_digest,
        original_digest=None,
        valid_days=config.valid_days,
    )
