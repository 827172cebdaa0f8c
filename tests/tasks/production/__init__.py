"""Protecting whole lakes."""
