"""The colours of states on terminals and pages."""

from __future__ import annotations

from enum import StrEnum


class Tone(StrEnum):
    """Red is for damage, amber for what waits for a person. A routine approval and a normal wait are neither."""

    GOOD = "good"
    NOW = "now"
    FAIR = "fair"
    BAD = "bad"
    SOFT = "soft"
