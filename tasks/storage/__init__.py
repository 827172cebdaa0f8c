"""Files on disk: atomic writes, digests, Parquet, models, checkpoints, caches."""
