"""The audit report as one self-contained page."""
