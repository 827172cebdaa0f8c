"""Parts that the adversarial methods share."""
