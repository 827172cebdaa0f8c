"""Audits of odd shapes, made from a real one: what the report must bear."""

import copy
from collections.abc import Callable
from typing import Any

Document = dict[str, Any]


def of_a_pair(document: Document) -> Document:
    """Somebody else's release: no pool, no model, no persons, and so nothing that needs them."""
    changed = copy.deepcopy(document)
    changed |= {"method": "elsewhere", "channel": None, "donors": None, "membership": None, "strangers": None, "replay": None}
    changed |= {"confusion": None, "forbid": None, "stamp": None, "model_digest": None, "pool_digest": None}
    changed |= {"original_digest": "0" * 64, "persons": dict(changed["records"]), "linkage": None}
    for row in changed["attributes"]:
        row |= {"exact": None, "own_adversary": None, "unfinetuned": None, "trained_on_released": None, "side_information": []}
        row["subgroups"] = [group | {"exact_nag": None, "information": None} for group in row["subgroups"]]
    return changed


def without_labels(document: Document) -> Document:
    """Production data: nothing could be attacked."""
    return of_a_pair(document) | {"basis": "unlabelled", "attributes": [], "checks": [], "reasons": [], "verdict": "pass"}


def of_new_records(document: Document) -> Document:
    """Production data judged by the labelled audit of the same protector, and by drift from its records."""
    told = {
        "found": 0.03,
        "null_mean": 0.02,
        "null_deviation": 0.004,
        "p_value": 0.01,
        "excess": 0.01,
        "unit": "record",
        "units": 9,
    }
    drift = [told | {"name": name} for name in ("feature_drift_at_most", "entropy_drift_at_most")]
    found = {"records": 321, "labelled_audit": "0" * 64, "labelled_time": "2026-01-02T03:04:05+00:00", "drift": drift}
    return copy.deepcopy(document) | {"basis": "unlabelled", "unlabelled": found}


def with_strangers(document: Document) -> Document:
    """Split by person."""
    changed = copy.deepcopy(document)
    row = changed["attributes"][0]
    stranger = {"attribute": row["name"], "by_others": row["nag"], "by_own_half": row["nag"]}
    stranger["information"] = row["exact"]["information"] | {"excess": 0.5, "null_deviation": 0.01, "p_value": 0.0}
    changed["strangers"] = {"persons": 12, "attributes": [stranger]}
    return changed


def of_many_classes(document: Document, n_classes: int = 60) -> Document:
    """Sixty people."""
    changed = copy.deepcopy(document)
    changed["classes"]["id"] = [f"class {k + 1}" for k in range(n_classes)]
    row = [1 / n_classes + (k % 7 - 3) / 1000 for k in range(n_classes)]
    changed["confusion"]["id"] = [row[k:] + row[:k] for k in range(n_classes)]
    return changed


def of_many_attributes(document: Document, number: int = 40) -> Document:
    """As in CelebA, with names that need escaping, and two that differ in a slash."""
    changed = copy.deepcopy(document)
    useful = next(row for row in document["attributes"] if row["role"] == "useful")
    for k in range(number):
        name = (
            ["a/b", "a b", "<script>alert(1)</script>", "Mouth_Slightly_Open_And_A_Very_Long_Name_Indeed"][k]
            if k < 4
            else f"hidden {k}"
        )
        changed["attributes"].append(copy.deepcopy(useful) | {"name": name, "role": "general", "verdict": None})
        changed["classes"][name] = document["classes"][useful["name"]]
        changed["confusion"][name] = document["confusion"][useful["name"]]
    return changed


SHAPES: dict[str, Callable[[Document], Document]] = {
    "of_a_pair": of_a_pair,
    "without_labels": without_labels,
    "with_strangers": with_strangers,
    "of_many_classes": of_many_classes,
    "of_many_attributes": of_many_attributes,
}
