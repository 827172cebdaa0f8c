"""Files that cannot be used: named, counted, left out; past a budget the run fails."""

from pass_core.errors import DataError

NAMED_AT_MOST = 5


class Quarantine:
    """What a reader leaves out. The files themselves stay where they are: raw data are never changed."""

    def __init__(self, budget: int, setting: str) -> None:
        """`budget` files may be left out; `setting` is the parameter that says so, for the message."""
        self.entries: list[dict[str, str]] = []
        self._budget = budget
        self._setting = setting

    def add(self, name: str, reason: str) -> None:
        """Leaves a file out.

        Raises:
            DataError: more files than the budget cannot be used; the message names the last ones and says why.
        """
        self.entries.append({"file": name, "reason": reason})
        if len(self.entries) > self._budget:
            named = "; ".join(f"{entry['file']}: {entry['reason']}" for entry in self.entries[-NAMED_AT_MOST:])
            raise DataError(
                f"{named}. {len(self.entries)} file(s) cannot be used, {self._budget} may be left out ({self._setting}); "
                "restore them, or raise the budget"
            )
