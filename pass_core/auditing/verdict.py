"""What was found against what is demanded: every check with its sentence, and the verdict."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pass_core.auditing.findings import AttributeFindings, Check, Information, Linkage, Membership, Replay, Strangers
from pass_core.auditing.thresholds import Thresholds
from pass_core.statistics.intervals import Estimate


@dataclass(frozen=True, slots=True)
class _Suspicion:
    """Information on a private attribute that may be more than chance."""

    about: str
    excess: float
    p_value: float
    compared: str  # with what, for people


def judge(
    attributes: Sequence[AttributeFindings],
    linkage: Linkage | None,
    membership: Membership | None,
    strangers: Strangers | None,
    replay: Replay | None,
    thresholds: Thresholds,
) -> tuple[Check, ...]:
    """All checks, in the order in which they are told."""
    checks = [check for row in attributes for check in _nag_checks(row, thresholds)]
    checks += _information_checks(attributes, strangers, thresholds)
    if membership is not None:
        limit = thresholds.membership_auc_at_most
        sentence = f"training records are told from others with AUC {_percent(membership.auc)}, at most {limit.value:.1%} allowed"
        passed = membership.auc.low <= limit.value
        checks.append(
            Check("membership_auc_at_most", "membership", membership.auc.value, limit.value, passed, sentence, limit.reason)
        )
    if linkage is not None:
        limit = thresholds.reidentified_at_most
        sentence = (
            f"a release is traced to its original among {linkage.gallery} in {_percent(linkage.reidentified)} of cases, "
            f"at most {limit.value:.1%} allowed"
        )
        passed = linkage.reidentified.low <= limit.value
        checks.append(
            Check("reidentified_at_most", "linkage", linkage.reidentified.value, limit.value, passed, sentence, limit.reason)
        )
    if replay is not None:
        limit = thresholds.replayed_seeds_at_most
        passed = not (replay.replayed and replay.claimed_secret)
        checks.append(
            Check("replayed_seeds_at_most", "draws", float(replay.replayed), limit.value, passed, _replayed(replay), limit.reason)
        )
    return tuple(checks)


def _replayed(replay: Replay) -> str:
    if not replay.records:
        return "the draws are so nearly certain that trying seeds could show nothing"
    if not replay.replayed:
        return f"the draws were not made from any of {replay.seeds} seeds"
    return "the draws can be made again from a guessable seed" + ("" if replay.claimed_secret else ", as the release says itself")


def _percent(estimate: Estimate) -> str:
    return f"{estimate.value:.1%} ({estimate.low:.1%} to {estimate.high:.1%})"


def _nag_checks(row: AttributeFindings, thresholds: Thresholds) -> Iterator[Check]:
    """The far end of an attribute's interval; in subgroups the near end, since small ones have wide intervals."""
    if row.role == "private":
        limit = thresholds.private_nag_at_most
        figures = {f"attack {found.name}": found.nag for found in row.attacks}
        if row.exact is not None:
            figures["the exact attacker's rule"] = row.exact.rule
        worst = max(figures, key=lambda name: figures[name].high)
        yield Check(
            "private_nag_at_most",
            row.name,
            figures[worst].high,
            limit.value,
            figures[worst].high <= limit.value,
            f"private attribute {row.name}: NAG {_percent(figures[worst])} under {worst}, at most {limit.value:.1%} allowed",
            limit.reason,
            row.name,
        )
        for side in row.side_information:
            if side.released and side.nag is not None:
                yield Check(
                    "private_nag_at_most",
                    f"{row.name}, with column {side.known}",
                    side.nag.high,
                    limit.value,
                    side.nag.high <= limit.value,
                    f"private attribute {row.name} from the release and column {side.known}, which left with it: NAG "
                    f"{_percent(side.nag)}, at most {limit.value:.1%} allowed",
                    limit.reason,
                    row.name,
                )
        yield from _worst_subgroup(row, thresholds)
    if row.role == "useful":
        limit = thresholds.useful_nag_at_least
        yield Check(
            "useful_nag_at_least",
            row.name,
            row.nag.low,
            limit.value,
            row.nag.low >= limit.value,
            f"useful attribute {row.name}: NAG {_percent(row.nag)}, at least {limit.value:.1%} demanded",
            limit.reason,
            row.name,
        )


def _worst_subgroup(row: AttributeFindings, thresholds: Thresholds) -> Iterator[Check]:
    """The subgroup whose interval begins highest."""
    limit = thresholds.private_nag_at_most
    figures = [
        (nag, who, subgroup)
        for subgroup in row.subgroups
        for nag, who in ((subgroup.nag, "the worst attack"), (subgroup.exact_nag, "an attacker who knows the subgroup"))
        if nag is not None
    ]
    if figures:
        nag, who, subgroup = max(figures, key=lambda figure: figure[0].low)
        yield Check(
            "private_nag_at_most",
            f"{row.name} in a subgroup of {subgroup.attribute}",
            nag.low,
            limit.value,
            nag.low <= limit.value,
            f"private attribute {row.name} among {subgroup.records} records of one class of {subgroup.attribute}, the worst "
            f"subgroup: NAG {_percent(nag)} under {who}, at most {limit.value:.1%} allowed, by the near end",
            limit.reason,
            row.name,
        )


def _information_checks(
    attributes: Sequence[AttributeFindings], strangers: Strangers | None, thresholds: Thresholds
) -> list[Check]:
    """Per private attribute the most significant of all comparisons; significance is shared among them all."""
    limit, significance = thresholds.information_excess_at_most, thresholds.significance
    private = [row for row in attributes if row.role == "private"]
    suspicions = {row.name: list(_suspicions(row, strangers)) for row in private}
    number = sum(map(len, suspicions.values()))
    checks = []
    for row in private:
        # Leaks first, the surest of them; without any, the least likely figure.
        worst = min(
            suspicions[row.name],
            key=lambda s: (not (s.p_value * number <= significance.value and s.excess > limit.value), s.p_value),
            default=None,
        )
        if worst is None:
            continue
        leaks = worst.p_value * number <= significance.value and worst.excess > limit.value
        chance = "more than chance" if worst.p_value * number <= significance.value else "no more than chance"
        checks.append(
            Check(
                "information_excess_at_most",
                worst.about,
                worst.excess,
                limit.value,
                not leaks,
                f"private attribute {worst.about}: the release tells {worst.excess:.5f} nats above {worst.compared}, {chance} "
                f"(p {worst.p_value:.2g}, {number} comparisons); at most {limit.value:g} nats allowed",
                f"{limit.reason} {significance.reason}",
                row.name,
            )
        )
    return checks


def _suspicions(row: AttributeFindings, strangers: Strangers | None) -> Iterator[_Suspicion]:
    def null_of(about: str, told: Information | None) -> Iterator[_Suspicion]:
        if told is not None:
            yield _Suspicion(about, told.excess, told.p_value, f"its null over {told.units} {told.unit}s")

    if row.exact is not None:
        yield from null_of(row.name, row.exact.information)
        for known in row.side_information:
            how = f"with column {known.known}" if known.released else f"when {known.known} is known"
            yield from null_of(f"{row.name}, {how}", known.information)
        for subgroup in row.subgroups:
            yield from null_of(f"{row.name} in a subgroup of {subgroup.attribute}", subgroup.information)
        for stranger in strangers.attributes if strangers else ():
            if stranger.attribute == row.name:
                yield from null_of(f"{row.name} of strangers", stranger.information)
    else:
        # Without P(x'|x), what an attack has really gained in foretelling is a lower end of the information.
        for found in row.attacks:
            yield _Suspicion(row.name, found.log_loss_gain.value, found.gain_p_value, f"the class shares, by attack {found.name}")
