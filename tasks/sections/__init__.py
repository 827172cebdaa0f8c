"""Typed sections of params.yaml."""
