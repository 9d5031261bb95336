"""Folders of the checkout that tests read."""

from __future__ import annotations

from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parent
FIXTURES = TESTS / "fixtures"
INCLUDE = ROOT / "include"
IMAGES = ROOT / "docs" / "images"
# `make pictures` takes them.
PICTURES = {
    *("approval", "console", "console-dark", "downgrade-options", "failed-gate", "features-form", "fleet", "graph"),
    *("offline-downgrade", "phone", "report", "scan-report", "scans-page", "trigger-form"),
}
