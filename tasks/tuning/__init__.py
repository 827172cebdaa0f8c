"""Searches for the setting that keeps most among those that would pass the audit."""
