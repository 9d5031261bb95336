"""Listeners of a node with their addresses, and the lines that apply to one of them."""

from __future__ import annotations

import pytest

from kafka_rollout.model.listeners import base_name, find_listeners
from kafka_rollout.model.starts import LOGIN_FILE, login_classes, login_file, named_files, plugin_names, reads_more

CONFIG = {
    "process.roles": "broker",
    "listeners": "INTERNAL://10.0.0.1:9092,CLIENTS://0.0.0.0:9093, SASL_SSL://[fd00::1]:9094",
    "advertised.listeners": "CLIENTS://kafka-1.example.com:443",
    "inter.broker.listener.name": "internal",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "INTERNAL:SSL,CLIENTS:sasl_plaintext,CONTROLLER:SSL,SASL_SSL:SASL_SSL",
    "ssl.keystore.location": "/etc/general.p12",
    "listener.name.internal.ssl.keystore.location": "/etc/internal.p12",
    "listener.name.internal.ssl.truststore.location": "${file:/etc/secrets:path}",
    "listener.name.clients.ssl.keystore.location": "/etc/unused.p12",
    "listener.name.clients.plain.sasl.server.callback.handler.class": "com.example.Handler",
    "metric.reporters": "org.apache.kafka.common.metrics.JmxReporter,com.example.Reporter",
}


def test_addresses_protocols_and_roles_of_listeners() -> None:
    found = {one.name: one for one in find_listeners(CONFIG).all}
    assert {name: (one.protocol, one.address) for name, one in found.items()} == {
        "INTERNAL": ("SSL", "10.0.0.1:9092"),
        "CLIENTS": ("SASL_PLAINTEXT", "kafka-1.example.com:443"),
        "SASL_SSL": ("SASL_SSL", "[fd00::1]:9094"),
        "CONTROLLER": ("SSL", ""),
    }
    assert [one.name for one in found.values() if one.is_inter_broker] == ["INTERNAL"]
    assert [one.name for one in found.values() if not one.is_own] == ["CONTROLLER"]
    assert [one.address for one in find_listeners({}).all] == [":9092"]


def test_the_line_of_a_listener_counts_more_than_the_general_one() -> None:
    internal, clients, general, _ = find_listeners(CONFIG).all
    assert internal.line(CONFIG, "ssl.keystore.location") == (
        "listener.name.internal.ssl.keystore.location",
        "/etc/internal.p12",
    )
    assert general.line(CONFIG, "ssl.keystore.location") == ("ssl.keystore.location", "/etc/general.p12")
    assert clients.line(CONFIG, "ssl.keystore.type") is None
    assert "ssl.keystore.location" not in internal.lines(CONFIG, "ssl.")
    assert base_name("listener.name.internal.ssl.keystore.location") == "ssl.keystore.location"


def test_a_start_reads_the_files_of_listeners_that_need_them() -> None:
    arguments = (f"-D{LOGIN_FILE}=/old.conf", "-Xmx1g", f"-D{LOGIN_FILE}=/etc/jaas.conf")
    assert named_files(CONFIG, arguments) == {
        "listener.name.internal.ssl.keystore.location": "/etc/internal.p12",
        "ssl.keystore.location": "/etc/general.p12",
        LOGIN_FILE: "/etc/jaas.conf",
    }
    plain = {"listeners": "PLAINTEXT://:9092", "ssl.keystore.location": "/etc/unused.p12"}
    assert named_files(plain, arguments) == {}
    assert (reads_more(CONFIG), reads_more(plain)) == (True, False)
    assert reads_more({"metric.reporters": "com.example.Reporter"})


def test_the_jaas_file_is_read_for_a_mechanism_without_a_line_of_its_own() -> None:
    own = {f"listener.name.{name}.gssapi.sasl.jaas.config": "M required;" for name in ("clients", "sasl_ssl")}
    arguments = (f"-D{LOGIN_FILE}=/etc/jaas.conf",)
    assert LOGIN_FILE not in named_files(CONFIG | own, arguments)
    more = {"listener.name.clients.sasl.enabled.mechanisms": "GSSAPI,PLAIN"}
    assert LOGIN_FILE in named_files(CONFIG | own | more, arguments)
    assert LOGIN_FILE in named_files(CONFIG | {"gssapi.sasl.jaas.config": "without a listener"}, arguments)
    logs_in = {"listener.security.protocol.map": "INTERNAL:SASL_SSL,CLIENTS:SSL,CONTROLLER:SSL,SASL_SSL:SSL"}
    own = {"listener.name.internal.plain.sasl.jaas.config": "M required;", "sasl.enabled.mechanisms": "PLAIN"}
    assert LOGIN_FILE in named_files(CONFIG | logs_in | own, arguments), "GSSAPI to the other brokers"
    plain = {"sasl.mechanism.inter.broker.protocol": "PLAIN"}
    assert LOGIN_FILE not in named_files(CONFIG | logs_in | own | plain, arguments)


@pytest.mark.parametrize("value", ["/etc/jaas.conf", "file:/etc/jaas.conf", "file:///etc/jaas.conf", "=/etc/jaas.conf"])
def test_the_jaas_file_can_be_a_url(value: str) -> None:
    assert login_file((f"-D{LOGIN_FILE}=/old", f"-D{LOGIN_FILE}={value}")) == "/etc/jaas.conf"


def test_names_of_classes_of_others() -> None:
    assert sorted(plugin_names(CONFIG)) == [
        ("listener.name.clients.plain.sasl.server.callback.handler.class", "com.example.Handler"),
        ("metric.reporters", "com.example.Reporter"),
    ]


def test_classes_of_logins_are_those_of_the_mechanisms_that_listeners_use() -> None:
    lines = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.clients.plain.sasl.jaas.config": 'com.example.Own required url="a; com.example.No required";',
        "plain.sasl.jaas.config": "com.example.General required;",
        "listener.name.clients.scram-sha-512.sasl.jaas.config": "${file:/etc/secrets:jaas}",
        "listener.name.clients.gssapi.sasl.jaas.config": "com.example.Unused required;",
        "sasl.jaas.config": "com.example.OfClients required;",
        "security.providers": "com.example.A, com.example.B",
    }
    assert sorted(set(login_classes({**CONFIG, **lines}))) == [
        ("listener.name.clients.plain.sasl.jaas.config", "com.example.Own"),
        ("security.providers", "com.example.A"),
        ("security.providers", "com.example.B"),
    ]
    assert not [*login_classes({**CONFIG, "security.providers": "${env:PROVIDERS}"})]
