"""Adds releases to the catalogue, and derives those of the catalogue again."""

from __future__ import annotations

from collections.abc import Callable

from kafka_rollout.base.system.settings import Settings
from kafka_rollout.releases.facts import Release, ReleaseFacts


def add_release(release: Release, say: Callable[[str], None], settings: Settings | None = None) -> ReleaseFacts:
    """Resolve, derive, verify and write one release. `say` is called with each stage. Errors: adapters.derivation."""
    from kafka_rollout.derivation import adding

    return adding.add_release(settings or Settings.from_environment(), release, say)


def check_release(release: Release, say: Callable[[str], None], settings: Settings | None = None) -> list[str]:
    """Derive one release of the catalogue again; return the names of the files that differ."""
    from kafka_rollout.derivation import adding

    return adding.check_release(settings or Settings.from_environment(), release, say)
