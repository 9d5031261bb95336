"""Jars outside of the release that stay before its own in the class path."""

from __future__ import annotations

import pytest

from kafka_rollout.model.host_state import HostFacts, PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.planning.findings.shadowing_jars import shadowing_jars
from tests.unit.builders import R391, R431, host_state

NODE = NodeSpec(node_id=1, name="k", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="k"))
OWN = ("kafka_2.13-3.9.1.jar", "kafka-clients-3.9.1.jar", "jackson-core-2.16.2.jar", "lz4-java-1.8.0.jar")
NEW = frozenset({"kafka_2.13-4.3.1.jar", "kafka-clients-4.3.1.jar", "jackson-core-2.19.0.jar", "lz4-java-1.8.0.jar"})
BEFORE = "/opt/plugins/*:/opt/kafka/bin/../libs/kafka_2.13-3.9.1.jar"


@pytest.mark.parametrize(
    ("jars", "class_path", "expected"),
    [
        (["my-authorizer-1.0.jar"], BEFORE, []),
        (["kafka-clients-3.9.1.jar", "my-authorizer-1.0.jar"], BEFORE, ["blocker"]),
        (["kafka-clients-4.3.1.jar"], BEFORE, []),
        (["kafka_2.13-3.9.1.jar"], BEFORE, ["blocker"]),
        (["kafka-avro-serializer-7.5.0.jar"], BEFORE, []),
        (["jackson-core-2.16.2.jar", "lz4-java-1.8.0.jar"], BEFORE, ["warning"]),
        (["kafka-clients-3.9.1.jar", "jackson-core-2.16.2.jar"], BEFORE, ["blocker", "warning"]),
        (["kafka-clients-3.9.1.jar"], "/opt/kafka/bin/../libs/kafka_2.13-3.9.1.jar:/opt/plugins/*", []),
        (["kafka-clients-3.9.1.jar"], "/srv/link/*:/opt/kafka/bin/../libs/kafka_2.13-3.9.1.jar", ["blocker"]),
    ],
)
@pytest.mark.parametrize("is_unpacked", [True, False])
def test_a_jar_of_another_release_before_those_of_the_next_one_is_found(
    jars: list[str], class_path: str, expected: list[str], is_unpacked: bool
) -> None:
    places = {
        release: StartPlace(path=f"/opt/kafka_2.13-{release}", state=PlaceState.FOLDER) for release in (R391, R431)
    }
    link = StartPath(kind=StartFileKind.LIBRARIES, path="/opt/kafka", now=places[R391], after=places)
    facts = HostFacts(
        loaded_jars=(*(f"/opt/kafka_2.13-3.9.1/libs/{jar}" for jar in OWN), *(f"/opt/plugins/{jar}" for jar in jars)),
        arguments=("java", "-cp", class_path, "kafka.Kafka"),
        release_jars={R431: NEW} if is_unpacked else {},
    )
    host = host_state(facts=facts, link=link)
    found = list(shadowing_jars(NODE, host, [R431]))
    wanted = expected if is_unpacked else [one for one in expected if one == "blocker"]
    assert [one.severity.value for one in found] == wanted
    assert list(shadowing_jars(NODE, host, [R391])) == [], "a restart starts what runs"
    if expected[:1] == ["blocker"]:
        assert f"/opt/plugins/{jars[0]} (4.3.1 there)" in found[0].sentence
