"""Analyses of the audit, one file each; a file holds its finding, its checks, its words for the report, and `ANALYSIS`."""
