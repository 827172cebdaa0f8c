"""One training loop and the networks that it trains."""
