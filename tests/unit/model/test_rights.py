"""The commands that grant the rights of this tool."""

from __future__ import annotations

from kafka_rollout.model.rights import CHANGING, TRAFFIC


def test_the_command_of_a_right_names_principal_operation_and_resource() -> None:
    begin = "kafka-acls.sh --bootstrap-server b:1 --command-config ADMIN.properties --add --allow-principal 'User:a'"
    commands = {str(right): right.command("b:1", "User:a") for right in (*CHANGING, *TRAFFIC)}
    assert commands["ALTER on CLUSTER"] == f"{begin} --operation Alter --cluster"
    assert commands["DESCRIBE_CONFIGS on TOPIC *"] == f"{begin} --operation DescribeConfigs --topic '*'"
    assert commands["READ on TOPIC __consumer_offsets"] == f"{begin} --operation Read --topic '__consumer_offsets'"
    assert commands["WRITE on TRANSACTIONAL_ID kafka-rollout-traffic-*"] == (
        f"{begin} --operation Write --transactional-id 'kafka-rollout-traffic-' --resource-pattern-type prefixed"
    )
