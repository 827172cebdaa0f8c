"""Feature extractors, one file each; a file holds `EXTRACTOR`."""
