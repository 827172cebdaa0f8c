"""What the recipient of a release is assumed to know and to hold: the audit judges such an attacker."""

from dataclasses import dataclass

from pass_core.checks import Checked, ranged


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipient(Checked):
    """The attacker whom the audit judges. Columns published beside the payload are always known."""

    knows: tuple[str, ...] | None = None  # attributes of every record that the recipient knows; null: all that are declared
    records_per_person: int = ranged(10, at_least=1)  # released records that the recipient can recognise as one person's
    draws_per_record: int = ranged(1, at_least=1)  # releases of the same record that the recipient holds

    def words(self) -> str:
        """The attacker in a sentence."""
        knows = "every declared attribute" if self.knows is None else ", ".join(self.knows) or "nothing else about a record"
        several = f"can recognise {self.records_per_person} released records as one person’s"
        draws = "one release" if self.draws_per_record == 1 else f"{self.draws_per_record} releases"
        return f"The recipient knows {knows}, {several}, and holds {draws} of each record."
