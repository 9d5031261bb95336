"""Airflow's simple users with rights on single DAGs, as other auth managers have them."""

from __future__ import annotations

import os
from typing import Any

from airflow.api_fastapi.auth.managers.simple.simple_auth_manager import SimpleAuthManager

READABLE = "TEST_READABLE_DAGS"  # variable with ids of DAGs; every DAG without it


class RightsPerDag(SimpleAuthManager):
    """Everybody may read the DAGs that the variable names, and no others."""

    def is_authorized_dag(self, *, method: Any, user: Any, access_entity: Any = None, details: Any = None) -> bool:
        readable = os.environ.get(READABLE)
        named = details is not None and details.id is not None
        if readable is not None and named and details.id not in readable.split():
            return False
        return super().is_authorized_dag(method=method, user=user, access_entity=access_entity, details=details)
