"""Data sets, one file each; a file holds its config dataclass and `DATASET`."""
