"""Audits of a release, of a pair of tables and of new data without labels."""
