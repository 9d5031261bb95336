"""The commands that grant the rights of this tool."""

from __future__ import annotations

from kafka_rollout.model.rights import CHANGING, READING, TRAFFIC, MissingRight, Right, grant_commands, right_findings
from kafka_rollout.model.topology import Role
from tests.unit.builders import SEPARATE


def test_the_command_of_a_right_names_principal_operation_and_resource() -> None:
    begin = "kafka-acls.sh --bootstrap-server b:1 --command-config ADMIN.properties --add --allow-principal 'User:a'"
    commands = {str(right): grant_commands([right], "b:1", "User:a")[0] for right in (*CHANGING, *TRAFFIC)}
    assert commands["ALTER on CLUSTER"] == f"{begin} --operation Alter --cluster"
    assert commands["DESCRIBE_CONFIGS on TOPIC *"] == f"{begin} --operation DescribeConfigs --topic '*'"
    assert commands["READ on TOPIC __consumer_offsets"] == f"{begin} --operation Read --topic '__consumer_offsets'"
    assert commands["WRITE on TRANSACTIONAL_ID kafka-rollout-traffic-*"] == (
        f"{begin} --operation Write --transactional-id 'kafka-rollout-traffic-' --resource-pattern-type prefixed"
    )


def test_all_rights_that_are_missing_on_a_resource_are_one_command() -> None:
    commands = grant_commands(READING, "b:1", "User:a")
    assert len(commands) == 7
    begin = "kafka-acls.sh --bootstrap-server b:1 --command-config ADMIN.properties --add --allow-principal 'User:a'"
    assert f"{begin} --operation Describe --operation DescribeConfigs --cluster" in commands
    assert f"{begin} --operation Describe --operation DescribeConfigs --topic '*'" in commands
    found = right_findings(SEPARATE, [MissingRight(right=right, principal="User:a") for right in READING])
    assert len(found) == len(READING)
    assert len({finding.remedy for finding in found}) == 7


def test_rights_of_two_principals_are_two_commands() -> None:
    (right,) = (one for one in READING if str(one) == "DESCRIBE_CONFIGS on CLUSTER")
    missing = [
        MissingRight(right=right, principal="User:a"),
        MissingRight(right=right, principal="User:b", listener=Role.CONTROLLER),
    ]
    found = right_findings(SEPARATE, missing)
    assert ["'User:a'" in one.remedy for one in found] == [True, False]
    assert found[1].subject == "DESCRIBE_CONFIGS on CLUSTER (controller listener)"


def test_a_topic_that_an_acl_denies_is_not_granted_but_the_acl_is_removed() -> None:
    hidden = Right("DESCRIBE", "TOPIC", "payroll", "list every partition", ())
    (found,) = right_findings(SEPARATE, [MissingRight(right=hidden, principal="User:a", denied_to=("User:a",))])
    assert found.sentence.startswith("An ACL denies User:a the right DESCRIBE on TOPIC payroll: the brokers hide")
    assert "--list --topic 'payroll' (principals: User:a)" in found.remedy
    assert "--add" not in found.remedy
