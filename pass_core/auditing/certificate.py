"""How much any donor, and any two records, can differ in what they reveal about an attribute."""

import math

import numpy as np
from scipy import special
from scipy.spatial.distance import pdist

from pass_core.auditing.findings import Certificate, DonorLeakage
from pass_core.channel.joint_law import posterior
from pass_core.data import DoubleArray, IntArray

MOST_PAIRED = 3000  # records among which the farthest two are sought; all where the attribute has two classes
RARE = 0.01


def donor_divergence(joint: DoubleArray) -> DoubleArray:
    """(pool,) KL(P(A|x')‖P(A)) of every donor, nats; 0 for donors never shown."""
    prior = joint.sum(axis=1, keepdims=True)
    divergence: DoubleArray = np.maximum(special.rel_entr(posterior(joint), prior).sum(axis=0), 0.0)
    return divergence


def donor_leakage(joint: DoubleArray) -> DonorLeakage:
    """The worst donor, and what nearly all releases stay below."""
    prior, shown = joint.sum(axis=1, keepdims=True), joint.sum(axis=0)
    ratios = posterior(joint)[:, shown > 0] / np.where(prior > 0, prior, 1)
    divergence = donor_divergence(joint)
    return DonorLeakage(
        float(ratios.max()),
        float(divergence.max()),
        {str(q): _mass_quantile(divergence, shown, q) for q in (0.5, 0.95, 1 - RARE)},
    )


def rare_donors(joint: DoubleArray) -> np.ndarray:
    """(pool,) 1.0 for donors that reveal more than 99 % of the releases do."""
    divergence, shown = donor_divergence(joint), joint.sum(axis=0)
    return (divergence > _mass_quantile(divergence, shown, 1 - RARE)).astype(np.float64)


def certify(joint: DoubleArray, inferred: DoubleArray, rarely: DoubleArray, rng: np.random.Generator) -> Certificate:
    """The certificate of one attribute.

    Args:
        joint: (classes, pool) P(A=a, X'=d) over the training records.
        inferred: (m, classes) E over x' of P(A|x') for every test record.
        rarely: (m,) probability that a test record gets a donor of `rare_donors`.
    """
    prior, shown = joint.sum(axis=1, keepdims=True), joint.sum(axis=0)
    divergence = donor_divergence(joint)
    distance = 0.5 * np.abs(posterior(joint) - prior).sum(axis=0)
    usual = _mass_quantile(divergence, shown, 1 - RARE)
    binary = inferred.shape[1] == 2
    rows: IntArray = np.arange(len(inferred)) if binary else rng.permutation(len(inferred))[:MOST_PAIRED]
    delta = float(np.ptp(inferred[:, 0])) if binary else 0.5 * float(pdist(inferred[rows], "cityblock").max(initial=0.0))
    gamma = float(divergence.max())
    return Certificate(
        gamma=gamma,
        pinsker=math.sqrt(2 * gamma),
        twice_distance=2 * float(distance.max()),
        delta=delta,
        robust_gamma=usual,
        robust_bound=math.sqrt(2 * usual) + float(np.sort(rarely)[-2:].sum()),
        records=len(rows),
    )


def _mass_quantile(values: DoubleArray, mass: DoubleArray, share: float) -> float:
    """The smallest value that at least `share` of the mass does not exceed."""
    order = np.argsort(values)
    reached = np.searchsorted(np.cumsum(mass[order]), share * mass.sum() - 1e-12)
    return float(values[order][min(int(reached), len(values) - 1)])
