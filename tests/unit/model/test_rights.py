"""The rights of this tool: docs/security.md lists the same ones, with the commands that grant them."""

from __future__ import annotations

import re

from kafka_rollout.model.rights import CHANGING, LIST_CONTROLLERS, PINNING, READING, TRAFFIC, Right
from tools.demo.folder import PROJECT_ROOT

_DOCS = (PROJECT_ROOT / "docs" / "security.md").read_text()


def _listed(heading: str) -> list[tuple[str, str, str]]:
    """Operation, resource and name of each row of the table below a heading."""
    section = _DOCS.split(f"### {heading}\n")[1].split("\n#")[0]
    return re.findall(r"^\| ([A-Z_]+) \| ([A-Z_]+) \| `([^`]+)` \|", section, re.MULTILINE)


def _keys(rights: tuple[Right, ...]) -> list[tuple[str, str, str]]:
    return [(right.operation, right.resource, right.name) for right in rights]


def test_the_docs_list_exactly_the_rights_that_are_checked() -> None:
    assert _listed("Read-only user") == _keys(READING)
    assert _listed("User for changes") == _keys(CHANGING)
    assert _listed("User for changes that pin a setting") == _keys(PINNING)
    assert _listed("User of the test traffic") == _keys(TRAFFIC)
    assert _listed("User of the controllers") == _keys((LIST_CONTROLLERS,))


def test_the_command_of_a_right_names_principal_operation_and_resource() -> None:
    begin = "kafka-acls.sh --bootstrap-server b:1 --command-config ADMIN.properties --add --allow-principal 'User:a'"
    commands = {str(right): right.command("b:1", "User:a") for right in (*CHANGING, *TRAFFIC)}
    assert commands["ALTER on CLUSTER"] == f"{begin} --operation Alter --cluster"
    assert commands["DESCRIBE_CONFIGS on TOPIC *"] == f"{begin} --operation DescribeConfigs --topic '*'"
    assert commands["READ on TOPIC __consumer_offsets"] == f"{begin} --operation Read --topic '__consumer_offsets'"
    assert commands["WRITE on TRANSACTIONAL_ID kafka-rollout-traffic-*"] == (
        f"{begin} --operation Write --transactional-id 'kafka-rollout-traffic-' --resource-pattern-type prefixed"
    )
