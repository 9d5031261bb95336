"""How many examples Hypothesis makes."""

from __future__ import annotations

from hypothesis import settings


def examples(count: int) -> int:
    """Return `count` in `make test-full`, which explores; a quarter (at least 5) in `make test`, which repeats them."""
    return count if settings.get_current_profile_name() == "exploring" else max(count // 4, 5)
