"""Lets threads sleep while they wait for each other. Every process of ours imports this before torch.

OpenMP's threads spin by default: a waiting thread keeps a core busy. Beside other jobs it takes that core from the thread that it
waits for, and training was measured twenty times slower. A user's own OMP_WAIT_POLICY takes precedence.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
