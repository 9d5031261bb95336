"""The native part of decoding: numba-compiled loops over raw bytes. Only decoding.py and its neighbours call it."""
