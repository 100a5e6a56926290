"""Several servers, clients and a rough world on a seeded scheduler."""

import os

# Before NumPy is loaded: a second thread of its library spins while it waits, and costs more than all the rest.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
