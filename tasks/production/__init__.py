"""Protecting whole lakes: incremental, atomic, resumable (docs/adr/0005)."""
