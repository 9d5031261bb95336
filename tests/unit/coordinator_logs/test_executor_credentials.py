"""Credentials travel to executors on other hosts only if Spark protects them."""

from __future__ import annotations

import pytest

from kafka_rollout.base.errors import UserError
from kafka_rollout.coordinator_logs.executor_credentials import (
    AUTHENTICATION,
    ENCRYPTION,
    MASTER,
    SETTINGS,
    TLS,
    protect_credentials,
)

REMOTE = "spark://spark-1.example.com:7077"
PROTECTED = {AUTHENTICATION: "true", ENCRYPTION: "true"}


def settings(master: str, **changed: str) -> dict[str, str]:
    return dict.fromkeys(SETTINGS, "") | {MASTER: master} | changed


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2,3]"])
def test_a_local_master_needs_no_protection(master: str) -> None:
    assert protect_credentials(settings(master)) == {}


@pytest.mark.parametrize("master", [REMOTE, "yarn", "k8s://https://host:443", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize(
    "configured",
    [
        {},
        {AUTHENTICATION: "true"},
        {ENCRYPTION: "true"},
        {AUTHENTICATION: "true", ENCRYPTION: "false"},
        {AUTHENTICATION: "yes", ENCRYPTION: "true"},
    ],
)
def test_without_authentication_and_encryption_the_scan_is_refused(master: str, configured: dict[str, str]) -> None:
    with pytest.raises(UserError) as refused:
        protect_credentials(settings(master, **configured))
    assert master in refused.value.sentence
    assert f"{AUTHENTICATION} and {ENCRYPTION} are not both true" in refused.value.sentence


def test_tls_between_sparks_processes_is_refused_because_it_replaces_the_encryption() -> None:
    with pytest.raises(UserError, match=f"{TLS} turns off {ENCRYPTION}"):
        protect_credentials(settings(REMOTE, **PROTECTED, **{TLS: "true"}))


@pytest.mark.parametrize("on", ["true", "TRUE", " true "])
def test_with_both_the_job_closes_the_other_ways_out(on: str) -> None:
    assert protect_credentials(settings(REMOTE, **{AUTHENTICATION: on, ENCRYPTION: on, TLS: "false"})) == {
        "spark.network.crypto.saslFallback": "false",
        "spark.io.encryption.enabled": "true",
    }
