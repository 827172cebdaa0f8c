"""What surrounds a step: layout, provenance, progress, tracking, processes."""
