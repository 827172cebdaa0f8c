"""Prefect flows and the command line: composition only, the work is in `tasks`."""
