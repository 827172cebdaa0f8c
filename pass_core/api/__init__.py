"""Protecting an array from Python: what `pass_core` exports as `Protector`, `audit` and `AuditResult`."""
