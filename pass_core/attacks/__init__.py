"""Probing attacks, one file each; a file holds its config dataclass and `ATTACK`."""
