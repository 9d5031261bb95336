"""Texts that users or clients choose are rendered in two modules: pages with escapes, and alerts in a sandbox."""

from __future__ import annotations

from tests.architecture.rooms import PACKAGE
from tests.architecture.test_layers import imported
from tests.paths import ROOT

RENDERERS = {"plugins/kafka_rollout/base/system/html.py", "plugins/kafka_rollout/base/system/alert_texts.py"}


def test_templates_are_rendered_in_two_modules() -> None:
    paths = [path for folder in ("plugins", "dags", "spark_jobs") for path in (ROOT / folder).rglob("*.py")]
    found = {str(path.relative_to(ROOT)) for path in paths if "jinja2" in imported(path.read_text())}
    assert found == RENDERERS


def test_no_text_is_rendered_with_the_context_of_a_task() -> None:
    """Airflow's context has every Connection and Variable."""
    names = ("render_template", "get_template_env", "render_templates")
    assert not [path for path in PACKAGE.rglob("*.py") if any(name in path.read_text() for name in names)]
