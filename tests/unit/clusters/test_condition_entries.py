"""Conditions from outside in an inventory: each invalid entry is refused with one sentence."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from kafka_rollout.base.errors import UserError
from kafka_rollout.clusters.entries import CommandEntry, PackageEntry, find_credential_argument
from kafka_rollout.clusters.inventory import dump_cluster, load_cluster
from kafka_rollout.model.topology import OutsideCondition
from tests.unit.clusters.test_inventory import inventory, write

QUERY: dict[str, Any] = {"name": "lag", "query": "sum(lag)", "requires": "< 1000"}


def load(tmp_path: Path, *conditions: dict[str, Any], connection: str | None = "prom") -> Any:
    return load_cluster(write(tmp_path, inventory(conditions=list(conditions), prometheus_connection_id=connection)))


def test_queries_and_commands_are_read_and_written(tmp_path: Path) -> None:
    command = {"name": "smoke", "command": ["/bin/smoke", "$(id)"], "applies_to": ["after_start"], "for_s": 60}
    spec = load(tmp_path, QUERY, command)
    assert spec.prometheus_connection_id == "prom"
    assert spec.conditions == (
        OutsideCondition(name="lag", query="sum(lag)", requires="< 1000"),
        OutsideCondition(name="smoke", command=("/bin/smoke", "$(id)"), applies_to=("after_start",), for_s=60.0),
    )
    assert load_cluster(write(tmp_path, dump_cluster(spec), "again.yaml")) == spec


@pytest.mark.parametrize(
    ("entry", "sentence"),
    [
        ({"name": "Lag!"}, r"conditions\[0\].name must be lower-case letters, digits and -"),
        ({"requires": "about 5"}, "'about 5' is not a comparison: write it in quotes"),
        ({"requires": "< NaN"}, "'< NaN' is not a comparison"),
        ({"requires": ""}, "condition lag is a query: it needs requires"),
        ({"query": ""}, "condition lag needs either a query or a command"),
        ({"query": "  "}, "condition lag needs either a query or a command"),
        ({"command": ["/bin/true"]}, "condition lag needs either a query or a command"),
        ({"query": "", "command": ["true"]}, "true is not the absolute path of a program"),
        ({"query": "", "command": "/bin/true -x"}, r"conditions\[0\].command must be a valid tuple"),
        ({"query": "", "command": ["/bin/x", "--api-token=abc"]}, "--api-token is a credential in an argument"),
        ({"query": "", "command": ["/bin/x", "-password", "abc"]}, "-password is a credential in an argument"),
        ({"query": "", "command": ["/bin/x", "TOKEN=abc"]}, "TOKEN is a credential in an argument"),
        ({"query": "", "command": ["/bin/sh", "-c", "API_KEY=abc x"]}, "API_KEY is a credential in an argument"),
        ({"query": "", "command": ["/bin/x", "-H", "Authorization: Bearer abc"]}, "Authorization is a credential in"),
        ({"query": "", "command": ["/bin/x", "--header=authorization:abc"]}, "authorization is a credential in"),
        ({"query": "", "command": ["/bin/x", "-u", "me:abc"]}, "-u is a credential in an argument"),
        ({"query": "", "command": ["/bin/x", "--user=me:abc"]}, "--user is a credential in an argument"),
        ({"query": "up{a='https://a:b@c'}"}, "possible credential"),
        ({"applies_to": []}, r"conditions\[0\].applies_to"),
        ({"applies_to": ["before_start"]}, "must be 'before_stop' or 'after_start'"),
        ({"timeout_s": 0}, r"conditions\[0\].timeout_s must be greater than 0"),
        ({"timeout_s": 61}, r"conditions\[0\].timeout_s must be less than or equal to 60"),
        ({"interval_s": 0}, r"conditions\[0\].interval_s must be greater"),
        ({"for_s": 5}, "condition lag has for_s 5 below interval_s 10: all checks of that time would use one reading"),
        ({"for_s": -1}, r"conditions\[0\].for_s must be greater"),
        ({"intervals": 3}, "is not a key of an inventory. Did you mean interval_s"),
    ],
)
def test_an_invalid_entry_is_refused_with_one_sentence(tmp_path: Path, entry: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UserError, match=sentence) as refused:
        load(tmp_path, {**QUERY, **entry})
    assert "abc" not in str(refused.value)
    assert refused.value.remedy


def test_names_are_unique_and_a_query_needs_a_connection(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="two conditions have the name lag"):
        load(tmp_path, QUERY, QUERY)
    with pytest.raises(UserError, match="condition lag is a query: set prometheus_connection_id"):
        load(tmp_path, QUERY, connection=None)


IN_THE_OPEN = [
    "curl -fsS -u svc:Geheim -X POST https://lb/drain",
    "curl -u 'svc:Geheim' https://lb",
    "curl -H 'Authorization: Bearer Geheim' https://lb",
    "curl -H 'X-Vault-Token: Geheim' https://lb",
    'curl --header "DD-API-KEY: Geheim" https://lb',
    "consul-cli --http-token Geheim maint",
    "PGPASSWORD=Geheim psql -c 'select drain()'",
    "MYSQL_PWD=Geheim mysql",
    "export TOKEN='Geheim'; drain",
    """curl -d '{"password": "Geheim"}' https://lb""",
    "curl -d 'user=a&password=Geheim' https://lb",
    "curl 'https://lb/drain?token=Geheim'",
]
READ_ON_THE_HOST = [
    'curl -H "Authorization: Bearer $(cat /etc/lb.token)" https://lb',
    "TOKEN=`cat /etc/lb.token` drain",
    'drain --token "$TOKEN" --token-file /etc/lb.token',
    'curl -u "svc:$(cat /etc/lb)" https://lb',
    "curl --netrc -X POST https://lb/api/drain/kafka-1",
    "aws secretsmanager get-secret-value --secret-id arn:aws:x",
    "vault kv get secret/kafka; test -f /etc/token:x",
    "prog --user kafka:9092 -H 'Idempotency-Key: 12'",
]


@pytest.mark.parametrize("line", IN_THE_OPEN)
def test_a_credential_in_a_command_of_the_host_or_of_a_package_is_refused(line: str) -> None:
    with pytest.raises(ValidationError, match="is a credential in an argument") as refused:
        CommandEntry(command=line)
    assert "Geheim" not in refused.value.errors(include_url=False, include_input=False)[0]["msg"]
    assert find_credential_argument(line.split(" "))
    with pytest.raises(ValidationError, match="is a credential in an argument"):
        PackageEntry(install=("/usr/bin/env", "TOKEN=Geheim", "{version}"), check=("/usr/bin/test", "{version}"))


@pytest.mark.parametrize("line", READ_ON_THE_HOST)
def test_a_command_can_read_a_credential_on_the_host(line: str) -> None:
    assert CommandEntry(command=line).command == line


@pytest.mark.parametrize(
    "words",
    [["-u", "kafka-1:9092"], ["-u", "https://x"], ["-url", "a:b"], ["--token-file=/t"], ["-u"], ["level=3"]],
)
def test_other_arguments_are_no_credentials(words: list[str]) -> None:
    assert find_credential_argument(words) is None
