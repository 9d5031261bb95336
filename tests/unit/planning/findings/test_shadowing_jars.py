"""Jars outside of the release that stay before its own in the class path."""

from __future__ import annotations

import pytest

from kafka_rollout.model.host_state import HostFacts, PlaceState, StartFileKind, StartPath, StartPlace
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.planning.findings.shadowing_jars import shadowing_jars
from kafka_rollout.releases.facts import Release
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


SCRIPTS = ":".join(f"/opt/kafka/bin/../libs/{jar}" for jar in OWN)


def found_in(*loaded: str, class_path: str = SCRIPTS, now: str = "/opt/kafka_2.13-3.9.1") -> list[str]:
    """The jars that are named. `now`: where the link leads."""
    after = {R431: StartPlace(path="/opt/kafka_2.13-4.3.1", state=PlaceState.FOLDER)}
    before = StartPlace(path=now, state=PlaceState.FOLDER)
    link = StartPath(kind=StartFileKind.LIBRARIES, path="/opt/kafka", now=before, after=after)
    facts = HostFacts(
        loaded_jars=loaded, arguments=("java", "-cp", class_path, "kafka.Kafka"), release_jars={R431: NEW}
    )
    found = shadowing_jars(NODE, host_state(facts=facts, link=link), [R431])
    return [
        jar for one in found for jar in ("/opt/plugins", "/data", "/opt/rsm", "/opt/kafka_2") if jar in one.sentence
    ]


@pytest.mark.parametrize("class_path", [SCRIPTS, f"/opt/plugins/*:{SCRIPTS}", "/opt/kafka/libs/*"])
def test_the_jars_of_the_running_release_are_its_own_wherever_they_are(class_path: str) -> None:
    """The link was switched since the start, or `libs` is a link, or each jar."""
    plugin = "/opt/plugins/my-authorizer-1.0.jar"
    moved = [f"/opt/kafka_2.13-3.9.1/libs/{jar}" for jar in OWN]
    assert found_in(*moved, plugin, class_path=class_path, now="/opt/kafka_2.13-3.8.1") == []
    linked = [f"/data/libs/3.9.1/{jar}" for jar in OWN]
    assert found_in(*linked, plugin, class_path=class_path) == []
    if class_path != "/opt/kafka/libs/*":
        stored = [f"/data/store/{number}/{jar}" for number, jar in enumerate(OWN)]
        assert found_in(*stored, plugin, class_path=class_path) == []


def test_a_second_copy_in_a_folder_of_plugins_is_found_although_the_link_was_switched() -> None:
    moved = [f"/opt/kafka_2.13-3.9.1/libs/{jar}" for jar in OWN]
    for now in "/opt/kafka_2.13-3.9.1", "/opt/kafka_2.13-3.8.1":
        for copy in "kafka-clients-3.9.1.jar", "kafka_2.13-3.9.1.jar":
            loaded = (*moved, f"/opt/plugins/{copy}")
            assert found_in(*loaded, class_path=f"/opt/plugins/*:{SCRIPTS}", now=now) == ["/opt/plugins"]
            assert found_in(*loaded, class_path=f"/srv/link/*:{SCRIPTS}", now=now) == ["/opt/plugins"]


def test_a_jar_of_a_class_loader_of_its_own_is_not_before_the_release() -> None:
    own = [f"/opt/kafka_2.13-3.9.1/libs/{jar}" for jar in OWN]
    isolated = "/opt/rsm/jackson-core-2.15.0.jar"
    assert found_in(*own, isolated) == []
    assert found_in(*own, isolated, "/opt/plugins/a-1.0.jar", class_path=f"/opt/plugins/*:{SCRIPTS}") == []


def test_no_remedy_removes_the_jars_of_a_release() -> None:
    own = [f"/opt/kafka_2.13-3.9.1/libs/{jar}" for jar in OWN]
    copy = "/opt/kafka_2.13-3.8.1/libs/kafka-clients-3.8.1.jar"
    place = StartPlace(path="/opt/kafka_2.13-3.9.1", state=PlaceState.FOLDER)
    after = {R431: StartPlace(path="/opt/kafka_2.13-4.3.1", state=PlaceState.FOLDER)}
    facts = HostFacts(
        loaded_jars=(*own, copy),
        arguments=("java", "-cp", f"/opt/kafka_2.13-3.8.1/libs/*:{SCRIPTS}", "kafka.Kafka"),
        release_jars={R431: NEW},
    )
    host = host_state(
        facts=facts,
        link=StartPath(kind=StartFileKind.LIBRARIES, path="/opt/kafka", now=place, after=after),
        folders={R431: "/opt/kafka_2.13-4.3.1", Release(3, 8, 1): "/opt/kafka_2.13-3.8.1"},
    )
    (found,) = shadowing_jars(NODE, host, [R431])
    assert found.remedy.startswith("Remove their folder from CLASSPATH:")
