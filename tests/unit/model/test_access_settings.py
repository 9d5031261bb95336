"""Which settings decide who may do what: every setting of every release is classified by meaning."""

from __future__ import annotations

import re
from typing import Any

import pytest

from kafka_rollout.model.access_settings import ACCESS, NOT_ACCESS, decides_access, why_not_access
from kafka_rollout.model.acls import AUTHORIZER_SETTINGS
from kafka_rollout.releases.documents.catalogue import load_catalogue
from tests.fakes.cluster import INCLUDE

CATALOGUE = load_catalogue(INCLUDE)
_SECURITY = re.compile(
    r"acl|auth|credential|delegation|encoder|jaas|jwt|kerberos|key(?!s\.)|listener|login|password|policy\.class"
    r"|policy\.kraft|principal|sasl|secret|secur|ssl|super\.user|token|trust"
)


@pytest.mark.parametrize("release", sorted(CATALOGUE), ids=str)
def test_every_setting_that_speaks_of_security_is_classified_once(release: Any) -> None:
    """A new release can bring one: its author decides here whether a changed line of it needs an approval."""
    speaking = {name for name in CATALOGUE.get(release).config_names if _SECURITY.search(name)}
    assert len(speaking) > 60
    assert {name for name in speaking if decides_access(name) == bool(why_not_access(name))} == set()


def test_no_classification_is_of_a_setting_that_no_release_has() -> None:
    names = {name for release in CATALOGUE for name in CATALOGUE.get(release).config_names}
    assert ACCESS - names == set(AUTHORIZER_SETTINGS), "those that the authorizer reads itself"
    assert [pattern for pattern in NOT_ACCESS if not any(re.fullmatch(pattern, name) for name in names)] == []


@pytest.mark.parametrize(
    ("name", "decides"),
    [
        ("ssl.client.auth", True),
        ("listener.name.external.ssl.client.auth", True),
        ("listener.name.external.sasl.enabled.mechanisms", True),
        ("listener.name.external.scram-sha-256.sasl.jaas.config", True),
        ("listener.name.external.plain.sasl.server.callback.handler.class", True),
        ("listener.name.external.oauthbearer.connections.max.reauth.ms", True),
        ("listener.name.external.ssl.keystore.location", False),
        ("listener.name.external.max.connections", False),
        ("plain.sasl.jaas.config", False),
        ("num.io.threads", False),
    ],
)
def test_prefixes_of_a_listener_and_a_mechanism_do_not_count(name: str, decides: bool) -> None:
    assert decides_access(name) is decides
