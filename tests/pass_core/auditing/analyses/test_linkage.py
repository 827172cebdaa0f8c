"""Linkage: what a table of P(x'|x) makes possible is found, and where it makes nothing possible nothing is found."""

from dataclasses import replace

import numpy as np
import pytest

from pass_core.auditing.analyses._record_bundles import donor_log_likelihood
from pass_core.auditing.analyses.linkage import ANALYSIS, Linkage, find_linkage
from pass_core.auditing.findings import Check
from pass_core.auditing.recipient import Recipient
from pass_core.auditing.subject import MadeRelease, Part, Subject, make_subject
from pass_core.auditing.thresholds import Depth, Thresholds
from pass_core.data import Attribute, FloatArray, IntArray, Records
from pass_core.randomness import stream
from tests.pass_core.channels import normalised, part_of, subject_of

ID = Attribute("id", tuple("abcdefgh"), "private")
PERSONS = np.repeat(np.arange(8), 30)  # eight persons with thirty records each
ONE = Recipient(records_per_person=1)
DEPTH = Depth(bundles=(1, 20), draws=(1, 2, 5, 20), gallery=10_000)


def _rng_for(*labels: str) -> np.random.Generator:
    return stream(5, *labels)


def _person_subject(table: FloatArray, persons: IntArray = PERSONS, attributes: tuple[Attribute, ...] = (ID,)) -> Subject:
    """Train and test are alike: one person of each number, and the same rows of P."""
    part = part_of({a.name: persons % a.n_classes for a in attributes}, persons)
    return replace(subject_of(attributes, (part, part), (table, table)), recipient=ONE)


def test_a_donor_per_record_leads_back_to_it() -> None:
    found = find_linkage(_person_subject(np.eye(240, dtype=np.float32)), DEPTH, _rng_for)
    assert (found.attack, found.gallery, found.chance) == ("likelihood", 240, 1 / 240)
    assert found.reidentified.value == found.person.value == 1
    assert [(d.draws, d.record.value, d.person.value) for d in found.repeated_draws] == [(k, 1, 1) for k in (1, 2, 5, 20)]


def test_rows_that_are_all_alike_lead_nowhere_however_often_they_are_drawn() -> None:
    row = stream(1, "row").dirichlet(np.ones(50))
    found = find_linkage(_person_subject(normalised(np.tile(row, (240, 1)))), DEPTH, _rng_for)
    for share in (found.reidentified, *(d.record for d in found.repeated_draws)):
        assert share.value == pytest.approx(found.chance)
    for share in (found.person, *(d.person for d in found.repeated_draws)):
        assert share.value == pytest.approx(found.person_chance) == pytest.approx(1 / 8)


def test_records_that_share_a_row_are_tossed_for() -> None:
    """Four records of one person each share a row with donors of its own: one of four is right, the person always."""
    table = np.kron(np.eye(60), np.ones((4, 3)) / 3).astype(np.float32)
    found = find_linkage(_person_subject(table, np.repeat(np.arange(60), 4)), DEPTH, _rng_for)
    assert found.reidentified.value == pytest.approx(0.25)
    assert found.person.value == pytest.approx(1)
    assert found.repeated_draws[-1].record.value == pytest.approx(0.25)


def test_the_rate_is_what_the_likelihoods_allow() -> None:
    """One draw: the mean over records of max_i P(d|x_i), summed over donors. More draws: more are found."""
    table = normalised(stream(2, "table").gamma(0.5, size=(2000, 40)))
    found = find_linkage(_person_subject(table, np.arange(2000), ()), DEPTH, _rng_for)
    allowed = float(table.max(axis=0).sum() / len(table))
    assert found.reidentified.low <= allowed <= found.reidentified.high
    assert found.repeated_draws[0].record.low <= allowed <= found.repeated_draws[0].record.high
    rates = [d.record.value for d in found.repeated_draws]
    assert rates == sorted(rates)
    assert rates[-1] > 10 * allowed


def test_one_impossible_draw_rules_a_candidate_out() -> None:
    """Records 0 and 1 share donor 0, the likeliest of record 1; whoever shows donor 1 once is record 0."""
    table = np.array([[0.5, 0.5], [1.0, 0.0]], dtype=np.float32)
    subject = _person_subject(table, np.arange(2), ())
    found = find_linkage(subject, replace(DEPTH, draws=(40,)), _rng_for)
    assert found.repeated_draws[0].record.value == 1


def _keeping(table: FloatArray, persons: IntArray) -> tuple[Linkage, list[Check]]:
    """The linkage of a release that is declared to keep who speaks."""
    speaker = Attribute("speaker", tuple(map(str, range(60))), "general")
    found = find_linkage(_person_subject(table, persons, (speaker,)), DEPTH, _rng_for)
    return found, [check for check in ANALYSIS.checks(found, Thresholds()) if check.name == "reidentified_at_most"]


def test_what_a_general_attribute_tells_about_a_record_is_declared() -> None:
    """Four records of each speaker: all share donors, so that a release tells the speaker and nothing else."""
    persons = np.repeat(np.arange(60), 4)
    found, (check,) = _keeping(np.kron(np.eye(60), np.ones((4, 3)) / 3).astype(np.float32), persons)
    assert found.reidentified.value == pytest.approx(0.25)  # a quarter, where chance gives 1 of 240
    assert found.alike is not None
    assert (found.alike.value, found.alike_chance, found.alike_records) == (pytest.approx(0.25), 0.25, 240)
    assert check.outcome == "below the limit"


def test_what_a_release_tells_beyond_its_general_attributes_is_a_leak() -> None:
    found, (check,) = _keeping(np.eye(240, dtype=np.float32), np.repeat(np.arange(60), 4))
    assert found.alike is not None
    assert found.alike.value == 1
    assert check.outcome == "leak shown"


def test_records_alone_in_their_kept_classes_are_not_judged() -> None:
    found, checks = _keeping(np.eye(60, dtype=np.float32), np.arange(60))
    assert (found.alike, found.alike_records, checks) == (None, 0, [])
    assert "declared, and not judged" in str(list(ANALYSIS.section(found)))


def test_a_gallery_is_a_part_of_the_records() -> None:
    found = find_linkage(_person_subject(np.eye(240, dtype=np.float32)), replace(DEPTH, gallery=17), _rng_for)
    assert (found.gallery, found.chance, found.reidentified.value) == (17, 1 / 17, 1)


def _leaking(share: float, seed: int = 3) -> FloatArray:
    """A share of a record's releases shows one of its person's five donors, the others any of forty."""
    own = np.kron(np.eye(8), np.ones((30, 5)) / 5)
    noise = stream(seed, "noise").dirichlet(np.ones(40), size=1).repeat(240, axis=0)
    return normalised(np.concatenate([share * own, (1 - share) * noise], axis=1))


def test_a_small_leak_of_the_person_adds_up() -> None:
    (bundles,) = find_linkage(_person_subject(_leaking(0.2)), DEPTH, _rng_for).bundles
    assert (bundles.attribute, bundles.persons, bundles.guess) == ("id", 8, 1 / 8)
    assert [b.records for b in bundles.sizes] == [1, 20]
    one, twenty = (b.accuracy.value for b in bundles.sizes)
    # Right when an own donor is shown, otherwise a constant guess; of twenty records one shows it with probability 0.9885.
    assert one == pytest.approx(0.2 + 0.8 / 8, abs=0.03)
    assert twenty == pytest.approx(0.9885 + 0.0115 / 8, abs=0.01)


def test_what_tells_nothing_of_the_person_tells_nothing_in_bundles() -> None:
    """Rows depend on a useful class that every person has alike."""
    useful = np.arange(240) % 3
    rows = stream(4, "rows").dirichlet(np.ones(40), size=3)
    (bundles,) = find_linkage(_person_subject(normalised(rows[useful])), DEPTH, _rng_for).bundles
    for bundle in bundles.sizes:
        assert bundle.accuracy.low <= bundles.guess <= bundle.accuracy.high
        assert bundle.accuracy.value < 0.25


def test_a_size_that_most_persons_do_not_have_is_left_out() -> None:
    persons = np.concatenate([np.repeat(np.arange(3), 40), np.repeat(np.arange(3, 8), 24)])
    (bundles,) = find_linkage(_person_subject(_leaking(0.2), persons), replace(DEPTH, bundles=(24, 40)), _rng_for).bundles
    assert [b.records for b in bundles.sizes] == [1, 24]


def test_only_what_belongs_to_persons_and_can_be_learnt_is_guessed() -> None:
    mood, role = Attribute("mood", ("x", "y"), "private"), Attribute("role", ("x", "y"), "useful")
    labels = {"id": PERSONS, "mood": np.arange(240) % 2, "role": PERSONS % 2}
    train, test = part_of(labels, PERSONS), part_of({**labels, "id": PERSONS}, PERSONS)
    tables = _leaking(0.2), _leaking(0.2)
    assert [b.attribute for b in find_linkage(subject_of((ID, mood, role), (train, test), tables), DEPTH, _rng_for).bundles] == [
        "id"
    ]
    names = Attribute("id", tuple("abcdefghijklmnop"), "private")
    strangers = part_of({"id": PERSONS + 8}, PERSONS + 8)
    assert (
        find_linkage(subject_of((names,), (part_of({"id": PERSONS}, PERSONS), strangers), tables), DEPTH, _rng_for).bundles == ()
    )


def test_a_donor_that_a_class_never_met_does_not_rule_it_out() -> None:
    """Donor 2 was met by class 1 alone: it outweighs a few donors that class 0 shows more often, but not a hundred of them."""
    joint = np.array([[0.25, 0.25, 0.0, 0.0], [0.225, 0.225, 0.05, 0.0]])
    told = donor_log_likelihood(joint, records=1000)
    for_class_0 = told[:, 0] - told[:, 1]
    assert 10 * for_class_0[0] + for_class_0[2] < 0 < 100 * for_class_0[0] + for_class_0[2]
    assert for_class_0[3] == 0  # nobody has met it


def _subject(attribute: Attribute, train: Part, test: Part, released_test: FloatArray, released_train: FloatArray) -> Subject:
    release = MadeRelease((released_test,), lambda _: released_train)
    return make_subject(attributes=(attribute,), train=train, test=test, release=release, recipient=ONE)


def _made(released: str) -> Subject:
    """Records of eight persons in four dimensions, each around its person's place; a method without a pool."""
    places = stream(6, "places").normal(0, 0.7, (8, 4))

    def part(name: str) -> Part:
        features = (places[PERSONS] + stream(6, name).normal(size=(240, 4))).astype(np.float32)
        return Part(Records(features, {"id": PERSONS}), PERSONS, np.arange(240))

    train, test = part("train"), part("test")
    if released == "originals":
        return _subject(ID, train, test, test.records.features, train.records.features)
    noise = stream(6, "noise").normal(size=(480, 4)).astype(np.float32)
    return _subject(ID, train, test, noise[:240], noise[240:])


def test_without_a_pool_originals_are_found_and_noise_is_not() -> None:
    leaking, noise = (find_linkage(_made(released), DEPTH, _rng_for) for released in ("originals", "noise"))
    assert leaking.attack == noise.attack == "nearest"
    assert leaking.reidentified.value == leaking.person.value == 1
    assert noise.reidentified.value <= 0.02
    assert noise.person.low <= noise.person_chance <= noise.person.high
    assert leaking.repeated_draws == noise.repeated_draws == ()


def test_without_a_pool_bundles_add_up_what_a_linear_attack_tells() -> None:
    leaking, noise = (find_linkage(_made(released), DEPTH, _rng_for).bundles[0] for released in ("originals", "noise"))
    one, twenty = (b.accuracy.value for b in leaking.sizes)
    assert one < 0.7
    assert twenty > 0.9
    assert all(b.accuracy.low <= noise.guess for b in noise.sizes)


def test_without_a_pool_a_rare_class_is_not_outvoted_by_its_rareness() -> None:
    """One person in eight is of the rare class, which counts once for a bundle and not once for every record."""
    rare = Attribute("rare", ("no", "yes"), "private")
    labels = (PERSONS == 7).astype(np.int64)

    def part(name: str) -> Part:
        features = (stream(7, name).normal(size=(240, 1)) + labels[:, None]).astype(np.float32)
        return Part(Records(features, {"rare": labels}), PERSONS, np.arange(240))

    train, test = part("train"), part("test")
    subject = _subject(rare, train, test, test.records.features, train.records.features)
    one, twenty = (b.accuracy.value for b in find_linkage(subject, DEPTH, _rng_for).bundles[0].sizes)
    assert one < 0.9
    assert twenty > 0.95


def test_the_same_streams_find_the_same() -> None:
    subject = _person_subject(_leaking(0.2))
    assert find_linkage(subject, DEPTH, _rng_for) == find_linkage(subject, DEPTH, _rng_for)
