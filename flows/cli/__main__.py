"""`python -m flows.cli`: the same as `pass-pipeline`."""

from flows.cli.main import main

main()
