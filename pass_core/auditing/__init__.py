"""The audit: everything a protected data set is attacked with, what was found, and the verdict."""
