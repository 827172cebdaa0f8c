"""Audits of version 2, whose checks were met or not and whose figures had no interval, in the form of today."""

from collections.abc import Mapping
from typing import Any

from scipy import special

from pass_core.statistics.intervals import CONFIDENCE

OLDER_VERSION = 2
NOTE = (
    "This audit was made by an older version: a check was met or not met, and nothing was called undecided. A check that was not "
    "met is shown as a leak, even where the figures could not decide. Audit again to judge by today’s rule."
)


def upgraded(found: Mapping[str, Any]) -> dict[str, Any]:
    """A version-2 document in today's form: what was not measured then stays empty."""
    checks = [_check(check) for check in found["checks"]]
    privacy = [check for check in checks if check["outcome"] in ("below the limit", "leak shown")]
    utility = [check for check in checks if check not in privacy]
    leaks = any(check["outcome"] == "leak shown" for check in privacy)
    lost = any(check["outcome"] == "lost" for check in utility)
    linkage = found["linkage"] and found["linkage"] | {"judged_records": 1, "judged_draws": 1}
    return dict(found) | {
        "schema_version": 3,
        "recipient": None,
        "donors_only": None,
        "privacy": "leak shown" if leaks else "below the limit",
        "utility": ("lost" if lost else "kept") if utility else None,
        "unreadable": [],
        "checks": checks,
        "attributes": [_attribute(row, found["records"]["test"]) for row in found["attributes"]],
        "linkage": linkage,
        "not_promised": [NOTE, *found["not_promised"]],
    }


def _outcome(passed: bool, *, useful: bool) -> str:
    return ("kept" if passed else "lost") if useful else ("below the limit" if passed else "leak shown")


def _check(check: Mapping[str, Any]) -> dict[str, Any]:
    useful, end = check["name"] == "useful_nag_at_least", check["found"]  # only the end that was judged
    unknown = dict.fromkeys(("population", "units", "needed", "detectable"))
    return {key: value for key, value in check.items() if key != "passed"} | {
        "found": {"value": end, "low": end, "high": end},
        "outcome": _outcome(check["passed"], useful=useful),
        "required": True,
        **unknown,
    }


def _attribute(row: Mapping[str, Any], records: int) -> dict[str, Any]:
    said = row["verdict"] and _outcome(row["verdict"] == "pass", useful=row["role"] == "useful")
    return dict(row) | {
        "attacks": [_attack(attack, records) for attack in row["attacks"]],
        "subgroups": [group | {"persons": 0} for group in row["subgroups"]],
        "side_information": [known | {"judged": known["released"]} for known in row["side_information"]],
        "through_useful": 0.0,
        "evidence": [],
        "verdict": said,
    }


def _attack(attack: Mapping[str, Any], records: int) -> dict[str, Any]:
    """The interval of the log-loss gain as that of a test over records: persons were not counted then."""
    gain = attack["log_loss_gain"]
    reach = float(special.ndtri((1 + CONFIDENCE) / 2))
    test = {
        "gain": gain["value"],
        "deviation": (gain["high"] - gain["low"]) / (2 * reach),
        "degrees": float(records),
        "p_value": attack["gain_p_value"],
        "unit": "record",
        "units": records,
        "records": records,
    }
    return {key: value for key, value in attack.items() if key not in ("log_loss_gain", "gain_p_value")} | {"gain": test}
