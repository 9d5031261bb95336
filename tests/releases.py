"""Releases that tests name by their place in the catalogue."""

from __future__ import annotations

NEWEST = "4.4.0"  # the Makefile downloads it too
