"""NAG, intervals and null distributions."""
