"""Each release of the catalogue, asked for groups of each type that a broker can list: none ends the question."""

from __future__ import annotations

import json
import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import errors as kafka_errors
from kafka.protocol.admin import ListGroupsRequest
from kafka.protocol.broker_version_data import BrokerVersionData

from kafka_rollout.client.connection import NotOfferedError
from kafka_rollout.client.coordinators import list_groups
from kafka_rollout.client.requests import ClusterConnections, Target
from kafka_rollout.model.groups import CLASSIC, CONSUMER, SHARE, STREAMS
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.paths import INCLUDE

pytestmark = pytest.mark.jvm

ALWAYS = ("3.4.0", "3.9.1", "4.0.1", "4.1.1", "4.3.1")
RELEASES = sorted(path.stem for path in (INCLUDE / "releases").glob("*.json"))
DESCRIBE = {CLASSIC: "DescribeGroups", **{kind: f"{kind.title()}GroupDescribe" for kind in (CONSUMER, SHARE, STREAMS)}}
BROKER = Target(node_id=1, address="broker-1:9092", who="Broker 1")


def definition(jar: zipfile.ZipFile, request: str) -> Any:
    """Kafka's own definition of a request; None if the release has none."""
    name = f"common/message/{request}Request.json"
    if name not in jar.namelist():
        return None
    return json.loads(re.sub(r"^\s*//.*$", "", jar.read(name).decode(), flags=re.MULTILINE))


def offered(libs: Path, *, unstable: bool) -> dict[int, tuple[int, int]]:
    """Api key → versions that a broker of the release offers; `unstable`: with unstable.api.versions.enable."""
    versions: dict[int, tuple[int, int]] = {}
    (clients,) = libs.glob("kafka-clients-*.jar")
    with zipfile.ZipFile(clients) as jar:
        for found in filter(None, (definition(jar, name) for name in DESCRIBE.values())):
            low, _, high = found["validVersions"].partition("-")
            highest = int(high or low) - (bool(found.get("latestVersionUnstable")) and not unstable)
            if int(low) <= highest:
                versions[found["apiKey"]] = int(low), highest
    return versions


class Broker:
    """It lists a group of each type, and answers what it offers."""

    def __init__(self, versions: Mapping[int, tuple[int, int]]) -> None:
        self.versions = BrokerVersionData(api_versions=dict(versions))

    def from_each(self, targets: Any, ask: Any) -> list[Any]:
        return [ask(target) for target in targets]

    def ask(self, target: Target, request: Any) -> Any:
        if isinstance(request, ListGroupsRequest):
            one = {"group_state": "Empty", "protocol_type": "consumer"}
            return SimpleNamespace(
                error_code=0, groups=[SimpleNamespace(group_id=kind, group_type=kind, **one) for kind in DESCRIBE]
            )
        try:
            version = self.versions.api_version(request)
        except kafka_errors.IncompatibleBrokerVersion:
            raise NotOfferedError("The release is too old.", remedy="none") from None
        request.encode(version=version)
        (group_id,) = getattr(request, "groups", None) or request.group_ids
        return SimpleNamespace(groups=[SimpleNamespace(group_id=group_id, error_code=0, members=[])])


@pytest.mark.parametrize("unstable", [False, True])
@pytest.mark.parametrize(
    "release", [pytest.param(name, marks=() if name in ALWAYS else pytest.mark.full) for name in RELEASES]
)
def test_each_listed_type_is_described_if_the_release_offers_it(
    release: str, unstable: bool, release_cache: ReleaseCache
) -> None:
    versions = offered(release_cache.libs(Release.parse(release)), unstable=unstable)
    keys = {CLASSIC: 15, CONSUMER: 69, SHARE: 77, STREAMS: 89}
    groups = list_groups(cast(ClusterConnections, Broker(versions)), [BROKER])
    assert {group.group_id: group.members for group in groups} == {
        kind: 0 if key in versions else None for kind, key in keys.items()
    }
