"""The command line, `pass-pipeline`."""
