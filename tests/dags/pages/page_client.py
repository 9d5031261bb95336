"""Airflow's API server with our page, in this process, and a viewer who is signed in."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fastapi import FastAPI

PREFIX = "/kafka-rollout"
VIEWER: Mapping[str, str] = {"anna": "viewer"}


@contextmanager
def serve_page(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, dags: str | None = None, users: Mapping[str, str] = VIEWER
) -> Iterator[Any]:
    """A test client of the server. `dags`: ids of the DAGs that users may read; all of them without it. `users`: name →
    role."""
    from airflow.api_fastapi.app import init_auth_manager, purge_cached_app
    from fastapi.testclient import TestClient

    from tests.dags.pages.rights import READABLE

    passwords = folder / "users.json"
    passwords.write_text(json.dumps(dict.fromkeys(users, "pw")))
    monkeypatch.setenv(
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS", ",".join(f"{name}:{role}" for name, role in users.items())
    )
    monkeypatch.setenv("AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE", str(passwords))
    monkeypatch.setenv("AIRFLOW__CORE__AUTH_MANAGER", "tests.dags.pages.rights.RightsPerDag")
    if dags is not None:
        monkeypatch.setenv(READABLE, dags)
    app = _create_app()
    purge_cached_app()
    app.state.auth_manager = init_auth_manager()
    with TestClient(app) as client:
        yield client
    purge_cached_app()


@cache
def _create_app() -> FastAPI:
    """Once: it takes longer than most tests of a page. Users, passwords and rights are read at each request."""
    from airflow.api_fastapi.app import create_app, purge_cached_app

    purge_cached_app()
    return create_app(apps="core")


def sign_in(client: Any, user: str = "anna") -> dict[str, str]:
    token = client.post("/auth/token", json={"username": user, "password": "pw"}).json()["access_token"]
    return {"Authorization": f"Bearer {token}"}
