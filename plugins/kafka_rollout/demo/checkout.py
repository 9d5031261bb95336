"""The checkout that the demo, the benchmarks and the tests run from."""

from __future__ import annotations

from pathlib import Path

PROJECT_ROOT = Path(__file__).resolve().parents[3]
