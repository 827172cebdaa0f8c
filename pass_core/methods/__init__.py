"""Obfuscation methods, one file each; a file holds its config dataclass and `METHOD`."""
