"""The one folder of pass_core that touches files, and that uses pydantic (docs/adr/0007)."""
