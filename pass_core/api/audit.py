"""`audit`: attacks what a protector releases, and gives a verdict."""

import dataclasses
import functools
import html
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import numpy as np

import pass_core.attacks
from pass_core import discovery
from pass_core.api.containers import Labelled
from pass_core.api.protector import Key, Protector
from pass_core.auditing.analyses.seed_replay import Replay, find_replay
from pass_core.auditing.findings import AuditFindings, Check, Verdict, with_interval
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.run import run_audit
from pass_core.auditing.subject import DrawnRelease, MadeRelease, Part, Split, Subject, make_subject
from pass_core.auditing.thresholds import Depth, Effort, Thresholds, tried
from pass_core.auditing.trained_attacks import NamedAttack, RngFor
from pass_core.data import shown_classes
from pass_core.errors import AuditError, ConfigError
from pass_core.methods.base import Adversarial
from pass_core.randomness import stream
from pass_core.storage.audits import context_of, document, figures_of
from pass_core.storage.files import AnyPath, as_path, write_json
from pass_core.storage.models import config_of
from pass_core.training.epochs import Epoch

HEADINGS = ("attribute", "role", "guess", "original", "released", "NAG (95 % interval)", "worst attack", "verdict")


@dataclass(frozen=True, slots=True, repr=False)
class AuditResult:
    """What an audit found: a table when printed or shown in a notebook."""

    findings: AuditFindings
    document: Mapping[str, Any]  # as in the pipeline's audit.json

    @property
    def verdict(self) -> Verdict:
        """ "pass", "undecided" or "fail"."""
        return self.findings.verdict

    @property
    def checks(self) -> tuple[Check, ...]:
        """Every demand of the verdict, with what was found."""
        return self.findings.checks

    @property
    def figures(self) -> dict[str, Any]:
        """The main figures: verdict, mNAG, and those of every attribute."""
        return figures_of(self.findings)

    def save(self, path: AnyPath) -> None:
        """Writes audit.json: `pass-pipeline report` and `compare` read it."""
        write_json(as_path(path), self.document)

    def __str__(self) -> str:
        rows = [HEADINGS, *self._rows()]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join([f"verdict: {self.verdict}", "", *lines, "", *self._sentences()])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        head = "".join(f"<th>{heading}</th>" for heading in HEADINGS)
        body = "".join(f"<tr>{''.join(f'<td>{html.escape(cell)}</td>' for cell in row)}</tr>" for row in self._rows())
        words = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in self._sentences())
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
        return f"<p><strong>Verdict: {self.verdict}</strong></p>{table}{words}"

    def _rows(self) -> list[tuple[str, ...]]:
        rows = []
        for row in self.findings.attributes:
            accuracies = (f"{share:.1%}" for share in (row.guess, row.unprotected.value, row.protected.value))
            rows.append((row.name, row.role, *accuracies, with_interval(row.nag), row.attack, row.verdict or "not judged"))
        return rows

    def _sentences(self) -> list[str]:
        meaning = [
            f"An attacker who sees one released record guesses {row.name} right in {100 * row.protected.value:.0f} of 100 cases; "
            f"guessing blindly gives {100 * row.guess:.0f}."
            for row in self.findings.attributes
            if row.role == "private"
        ]
        label = "Failed" if self.verdict == "fail" else "Undecided"
        quick = self.findings.not_promised[:1] if self.findings.effort == "quick" else ()
        return [*meaning, *(f"{label}: {reason}." for reason in self.findings.reasons), *quick]


def audit(
    protector: Protector,
    X: Any,
    labels: Any,
    persons: Any = None,
    ids: Any = None,
    *,
    train: Labelled | None = None,
    key: Key = None,
    attacks: Mapping[str, Mapping[str, Any] | None] | None = None,
    depth: Mapping[str, Any] | None = None,
    thresholds: Mapping[str, Any] | None = None,
    attacker: Mapping[str, Any] | None = None,
    effort: Effort = "full",
    verbose: bool = False,
) -> AuditResult:
    """Releases held-out records, attacks every attribute of the release with every attack, and judges.

    Args:
        X: records that were not in `fit`, with their labels and persons in the same form.
        train: records that attackers learn from; None: those of `fit`, which a loaded protector no longer has. Use
            `protector.records(X_train, labels_train, persons=persons_train)`.
        key: the draw key of the audited release; None: of an experiment with the protector's seed.
        attacks: attack -> settings; None: all of `pass_core.attacks`.
        depth: settings of `Depth`.
        thresholds: settings of `Thresholds`: name -> {"value": number, "reason": sentence}.
        attacker: settings of `Recipient`: what the recipient of the release knows and holds. What it knows is by default
            `Protector.knows`; where that is None, every declared attribute, of which the protector hides from the useful ones.
        effort: "quick" tries fewer attacks and analyses: for trying things out, not before publishing.
        verbose: prints the name of every attack that has finished.
    """
    known = train or getattr(protector, "training_", None)
    if known is None:
        found = "expected records that attackers learn from, found none, since a loaded protector has no training records"
        raise AuditError(f"train: {found}; pass train=protector.records(X_train, labels_train, persons=persons_train)")
    named = _named_attacks(attacks, effort)
    thorough, limits = config_of(Depth, depth, "depth"), config_of(Thresholds, thresholds, "thresholds")
    splits: dict[Split, Labelled] = {"train": known, "test": protector.records(X, labels, persons=persons, ids=ids)}
    rng_for = functools.partial(stream, protector.seed, "audit")
    recipient = config_of(Recipient, {"knows": protector.knows, **(attacker or {})}, "attacker")
    subject = _subject(protector, splits, key, fresh_draws=thorough.fresh_draws, rng_for=rng_for, recipient=recipient)
    replay = _replay(protector, splits["test"], subject, claimed_secret=isinstance(key, bytes))

    def on_attack(work: str, epoch: Epoch) -> None:
        if verbose and epoch.number == epoch.total:
            print(work)  # noqa: T201 (asked for by verbose)

    findings = run_audit(subject, named, limits, thorough, rng_for, on_attack=on_attack, replay=replay, effort=effort)
    context = dataclasses.replace(
        context_of(subject, named, limits, thorough, dataset="array", method=protector.method_name(), protected_digest=None),
        split="as given",
        classes=_classes(protector, splits) | {a.name: a.classes for a in subject.attributes if a.name in subject.combines},
        forbid=None if subject.substitution is None else protector.forbid,
        stamp=None if isinstance(key, bytes) else "experiment: the draw key comes from a seed; not for release",
        model_digest=protector.digest_,
    )
    return AuditResult(findings, document(findings, context))


def _named_attacks(attacks: Mapping[str, Mapping[str, Any] | None] | None, effort: Effort) -> tuple[NamedAttack, ...]:
    """The attacks that an audit of this effort tries, with their settings."""
    if effort not in get_args(Effort):
        raise ConfigError(f"effort: expected one of {', '.join(get_args(Effort))}, found {effort!r}; correct it")
    given = dict.fromkeys(discovery.available(pass_core.attacks)) if attacks is None else attacks
    loaded = {name: discovery.load(pass_core.attacks, name).ATTACK for name in given if tried(name, effort)}
    return tuple(NamedAttack(name, a, config_of(a.config_type, given[name], f"attacks.{name}")) for name, a in loaded.items())


def _classes(protector: Protector, splits: Mapping[Split, Labelled]) -> dict[str, tuple[str, ...]]:
    """The classes of every attribute as they may be shown."""
    people = np.concatenate([part.persons for part in splits.values()]).tolist()
    return {
        a.name: shown_classes(a.classes, np.concatenate([part.records.labels[a.name] for part in splits.values()]), people)
        for a in protector.attributes()
    }


def _subject(
    protector: Protector, splits: Mapping[Split, Labelled], key: Key, *, fresh_draws: int, rng_for: RngFor, recipient: Recipient
) -> Subject:
    """The records as the audit sees them, with one keyed release of each split."""
    secret = protector.draw_key(key or "experiment")
    names = np.unique(np.concatenate([splits["train"].persons, splits["test"].persons, protector.donor_persons_]))
    persons = {split: np.searchsorted(names, data.persons) for split, data in splits.items()}
    train, test = (Part(data.records, persons[split], persons[split]) for split, data in splits.items())
    fitted, features = protector.fitted_, train.records.features
    release: DrawnRelease | MadeRelease
    if fitted.channel is None:
        released = fitted.transform(test.records.features, rng_for("release", "test"))
        release = MadeRelease((released,), lambda draw: fitted.transform(features, rng_for("release", str(draw % fresh_draws))))
    else:
        place = {name: row for row, name in enumerate(splits["train"].ids.tolist())}
        release = DrawnRelease(
            channel=lambda split, rows: protector.channel_for(splits[split].subset(rows)),
            donor_features=protector.setting_.pool.features,
            drawn_test=protector.draw(splits["test"], secret),
            drawn_train=protector.draw(splits["train"], secret),
            donor_persons=np.searchsorted(names, protector.donor_persons_),
            donor_rows=np.array([place.get(name, -1) for name in protector.donor_ids_.tolist()], dtype=np.int64),
            fresh_draws=fresh_draws,
            rng=rng_for("release"),
        )
    return make_subject(
        attributes=protector.attributes(),
        train=train,
        test=test,
        release=release,
        learnt_from=splits["train"].learnt_from,
        own_adversaries=fitted.adversaries if isinstance(fitted, Adversarial) else {},
        recipient=recipient,
    )


def _replay(protector: Protector, test: Labelled, subject: Subject, *, claimed_secret: bool) -> Replay | None:
    """Whether the audited draws follow from a seed that can be guessed."""
    if subject.substitution is None:
        return None
    channel = subject.substitution.channel("test", np.arange(len(test.ids)))
    rows, probabilities = next(channel.blocks(test.records.features))
    ids, drawn, seeds = test.ids[rows].tolist(), subject.substitution.drawn[rows], [max(0, protector.seed)]
    return find_replay(probabilities, ids, drawn, [protector.scope_], claimed_secret=claimed_secret, more_seeds=seeds)
