"""A line of a unit or a script of a host can have a credential, and findings go to the database, pages and messages.

A new text of a stop is planted here by its type, so it cannot be left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, get_type_hints

import pytest

from kafka_rollout.model.host_state import HostState, JavaProcess, UnitStop
from kafka_rollout.model.topology import ClusterSpec, NodeSpec, Role, ServiceSpec
from kafka_rollout.planning.findings.stops import stop_findings

SECRET = "Pa55w0rd"
LINES = (
    f"curl -sf -u ops:{SECRET} -XPOST https://cc:9090/demote ; pkill -9 -f kafka.Kafka",
    f"/usr/local/bin/drain --token={SECRET} ; kafka-server-stop.sh",
    f"PASSWORD={SECRET} killall -9 java",
    f"PASSWORD={SECRET} SIGNAL=KILL kafka-server-stop.sh ; pkill java",
)
NODE = NodeSpec(node_id=1, name="kafka-1", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="kafka-1"))
PROCESSES = (
    JavaProcess(pid=9, unit="kafka-b.service", command=("java", "kafka.Kafka", "/etc/b"), configuration="/etc/b"),
    JavaProcess(pid=10, unit="connect.service", command=("java", "Connect"), program="Connect"),
)
SCRIPT = "/usr/local/bin/stop"


def planted(kind: Any, line: str) -> Any:
    """A value of the type of a field with the line; None if it has no text."""
    forms: Mapping[Any, Any] = {
        str: line,
        tuple[str, ...]: (line, f"/bin/sh -c {line}", SCRIPT),
        tuple[tuple[str, str], ...]: ((SCRIPT, line),),
        Mapping[str, str]: {SCRIPT: line},
    }
    return forms.get(kind)


@pytest.mark.parametrize("line", LINES)
def test_no_finding_shows_a_credential_of_a_text_of_a_stop(line: str) -> None:
    hints = get_type_hints(UnitStop)
    texts = {one.name: text for one in dataclasses.fields(UnitStop) if (text := planted(hints[one.name], line))}
    assert texts.keys() == {"commands", "lines", "after", "scripts", "signal"}, "a new text is planted too"
    stop = UnitStop(**texts, processes=PROCESSES[:1], programs=PROCESSES[1:])
    host = HostState(
        name="kafka-1",
        unit="kafka.service",
        symlink="/opt/kafka",
        folders={},
        releases=frozenset(),
        symlink_can_switch=True,
        stop_timeout_s=300.0,
        stop=stop,
    )
    found = list(stop_findings(ClusterSpec(name="far", runtime="ssh_service", nodes=(NODE,)), NODE, host))
    assert {one.code for one in found} >= {"STOP-REACHES-OTHER-NODES", "STOP-NOT-CONTROLLED"}
    assert [one for one in found if SECRET in f"{one.subject} {one.sentence} {one.remedy} {one.covers}"] == []
