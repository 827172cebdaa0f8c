"""Unusable files: listed, counted, skipped; too many end the run."""

from pass_core.errors import DataError

NAMED_AT_MOST = 5


class Quarantine:
    """The files that a reader skips. They are not moved: raw data are never changed."""

    def __init__(self, budget: int, setting: str) -> None:
        """`budget` files may be skipped; `setting` is the name of that parameter, for the message."""
        self.entries: list[dict[str, str]] = []
        self._budget, self._setting = budget, setting

    def add(self, name: str, reason: str) -> None:
        """Skips a file; when more than the budget are unusable, a DataError names the last ones with reasons."""
        self.entries.append({"file": name, "reason": reason})
        if len(self.entries) > self._budget:
            named = "; ".join(f"{entry['file']}: {entry['reason']}" for entry in self.entries[-NAMED_AT_MOST:])
            found = f"{len(self.entries)} file(s) cannot be used, {self._budget} may be skipped ({self._setting})"
            raise DataError(f"{named}. {found}; restore them, or raise the budget")
