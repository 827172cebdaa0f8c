"""What computes an extractor's network."""
