"""The comparison of two runs as one HTML page: self-contained, printable, light and dark."""

from __future__ import annotations

from kafka_rollout.base.system.html import page_environment
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.report.run_comparison import RunComparison

TEMPLATE = "comparison.html.j2"


def render_comparison(comparison: RunComparison, *, settings: Settings | None = None) -> str:
    """Return the page. All values are escaped."""
    environment = page_environment(settings or Settings.from_environment())
    return environment.get_template(TEMPLATE).render(comparison=comparison)
