"""Kinds of payload: vectors, images, sounds, and how damaged ones are quarantined."""
