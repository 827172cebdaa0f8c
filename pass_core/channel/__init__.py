"""The channel P(x'|x): pool, draws, exact joint law."""
