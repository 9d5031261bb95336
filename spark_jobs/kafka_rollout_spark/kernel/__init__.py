"""The compiled part of decoding: loops over raw bytes that numba compiles. Only the package `decode` calls it."""
