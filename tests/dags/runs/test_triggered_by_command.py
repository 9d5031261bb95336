"""`airflow dags trigger` takes the form's questions as the UI and the REST API do, and holds to the same schema."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.dags.conftest import DAG_ID
from tools.demo.folder import PROJECT_ROOT

pytestmark = pytest.mark.airflow


@pytest.fixture
def trigger(inventory: Path, database: None) -> Callable[..., dict[str, Any]]:
    """Airflow's own command on a DAG folder that the DAG processor has read; the answer is the run's conf."""
    from airflow.cli.cli_parser import get_parser
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import BundleDagBag, sync_bag_to_db
    from airflow.models.dagrun import DagRun
    from airflow.utils.session import create_session

    folder = PROJECT_ROOT / "dags"
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(BundleDagBag(dag_folder=folder, bundle_path=folder, bundle_name="dags-folder"), "dags-folder", None)

    def run(run_id: str, **conf: Any) -> dict[str, Any]:
        arguments = get_parser().parse_args(
            ["dags", "trigger", DAG_ID, "--run-id", run_id, "--conf", json.dumps(conf), "--output", "json"]
        )
        arguments.func(arguments)
        with create_session() as session:
            made = session.query(DagRun).filter(DagRun.run_id == run_id).one()
            return dict(made.conf)

    return run


def test_a_run_is_triggered_by_the_command_line_with_the_form_s_answers(trigger: Callable[..., dict[str, Any]]) -> None:
    assert trigger("by-hand", target_release="4.3.1", dry_run=True, pace="fast") == {
        "target_release": "4.3.1",
        "dry_run": True,
        "pace": "fast",
    }


@pytest.mark.parametrize("conf", [{"target_release": "9.9.9"}, {"finalize": "now"}, {"pace": "slow"}], ids=str)
def test_what_makes_no_sense_is_refused_before_there_is_a_run(
    trigger: Callable[..., dict[str, Any]], conf: dict[str, Any]
) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises((ValueError, ParamValidationError), match=next(iter(conf))):
        trigger("bad", **{"target_release": "4.3.1", **conf})
