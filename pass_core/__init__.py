"""The mathematics of PASS: channels over a donor pool, their training, and attacks on what they release.

Pure: arrays in, arrays out. No files, no environment, no logging, no global random state; progress goes to callbacks.
"""
