"""Accuracy and its normalised form NAG (PASS, ICML 2025, eq. 13 and 14)."""

from collections.abc import Sequence

import numpy as np

from pass_core.data import IntArray
from pass_core.errors import AuditError


def majority_class(labels: IntArray) -> int:
    """The most frequent class of the training set: what an attacker guesses without looking."""
    return int(np.bincount(labels).argmax())


def accuracy(predicted: IntArray, labels: IntArray) -> float:
    """Share of right predictions."""
    return float((predicted == labels).mean())


def balanced_accuracy(predicted: IntArray, labels: IntArray) -> float:
    """Mean over the classes present of the share of right predictions in that class."""
    return float(np.mean([(predicted[labels == c] == c).mean() for c in np.unique(labels)]))


def nag(protected: float, guess: float, unprotected: float) -> float:
    """Normalised accuracy gain (eq. 13) max(0, (Acc − Acc_guess) / (Acc_unprotected − Acc_guess)).

    Raises:
        AuditError: the attribute cannot be told from unprotected data either, so there is nothing to normalise by.
    """
    if unprotected <= guess:
        raise AuditError(
            f"accuracy on unprotected data ({unprotected:.3f}) is not above guessing ({guess:.3f}): NAG is undefined; "
            "train the attack longer (audit.attacks) or drop the attribute"
        )
    return max(0.0, (protected - guess) / (unprotected - guess))


def mean_nag(private: Sequence[float], useful_and_hidden: Sequence[float]) -> float:
    """mNAG (eq. 14): mean NAG of useful and hidden attributes minus mean NAG of private ones."""
    if not private or not useful_and_hidden:
        raise AuditError("mNAG needs at least one private and one useful or hidden attribute")
    return float(np.mean(useful_and_hidden) - np.mean(private))
