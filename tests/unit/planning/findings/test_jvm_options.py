"""Options of a node's process that its next start does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kafka_rollout.model.jvm_options import LostOption, NextOptions
from kafka_rollout.model.topology import NodeSpec, Role, ServiceSpec
from kafka_rollout.planning.findings.jvm_options import jvm_option_losses
from tests.unit.builders import R431, host_state

JMX = "-Dcom.sun.management.jmxremote"
PORT = f"{JMX}.port=9999"
NODE = NodeSpec(node_id=1, name="k", roles=frozenset({Role.BROKER}), service=ServiceSpec(host="k"))


@pytest.mark.parametrize("field", ["lost", "gone"])
@pytest.mark.parametrize(
    ("option", "next_start", "severity"),
    [
        ("authenticate=true", NextOptions(arguments=(PORT,)), "blocker"),
        ("password.file=/etc/kafka/jmx.password", NextOptions(arguments=(PORT,)), "blocker"),
        ("access.file=/etc/kafka/jmx.access", NextOptions(arguments=(PORT,)), "blocker"),
        ("login.config=Jmx", NextOptions(arguments=(PORT,)), "blocker"),
        ("ssl.need.client.auth=true", NextOptions(arguments=(PORT,)), "blocker"),
        ("registry.ssl=true", NextOptions(arguments=(PORT,)), "blocker"),
        ("ssl=true", NextOptions(unclear=(LostOption(option=PORT),)), "blocker"),
        ("authenticate=true", NextOptions(), "warning"),
        ("authenticate=false", NextOptions(arguments=(PORT,)), "warning"),
        ("host=127.0.0.1", NextOptions(arguments=(PORT,)), "warning"),
    ],
)
def test_the_login_of_a_jmx_port_that_stays_open_is_needed(
    field: str, option: str, next_start: NextOptions, severity: str
) -> None:
    options = {R431: replace(next_start, **{field: (LostOption(option=f"{JMX}.{option}"),)})}
    found = [
        one
        for one in jvm_option_losses(NODE, host_state(options=options, releases=frozenset()), [R431])
        if one.code != "JVM-OPTION-UNKNOWN"
    ]
    assert [one.severity.value for one in found] == [severity]
    assert ("sets authenticate=false" in found[0].sentence) == (severity == "blocker")
