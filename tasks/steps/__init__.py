"""The nine steps, one file each: plain functions, files in, files out."""
