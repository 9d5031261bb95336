"""Options of a JVM as findings show them."""

from __future__ import annotations

import pytest

from kafka_rollout.model.jvm_options import shown_option, shown_options


@pytest.mark.parametrize(
    "text",
    [
        "-Dmaster.key=S3CRET",
        "-Dinstana.key=S3CRET",
        "-Dhazelcast.login=admin:S3CRET",
        "-Dauth.basic=S3CRET",
        "-Dotel.exporter.otlp.headers=x-honeycomb-team=S3CRET",
        "-Djavax.net.ssl.keyStorePassword=S3CRET",
        "-javaagent:/opt/agent.jar=tenant=a,key=S3CRET",
        "-agentpath:/opt/agent.so=server=https://x,id=S3CRET",
        'export KAFKA_OPTS="$KAFKA_OPTS -Dsas.key=S3CRET -Xmx1g"',
        "export CONFLUENT_SECURITY_MASTER_KEY=S3CRET",
        "-Dcom.sun.management.jmxremote.key.password=S3CRET",
        'exec java "-Dagent.login=admin S3CRET" kafka.Kafka',
        "OPTIONS=('-Dagent.login=admin S3CRET')",
    ],
)
def test_a_value_that_can_be_a_secret_is_hidden(text: str) -> None:
    assert "S3CRET" not in shown_options(text)
    assert "[hidden]" in shown_options(text)


@pytest.mark.parametrize(
    "text",
    [
        "-Xmx6g",
        "-Dkafka.logs.dir=/var/log/kafka",
        "-Dlog4j.configuration=file:/etc/kafka/log4j.properties",
        "-Djava.security.auth.login.config=/etc/kafka/jaas.conf",
        "-Djavax.net.ssl.trustStore=/etc/kafka/trust.jks",
        "-Dcom.sun.management.jmxremote.port=9999",
        "-javaagent:/opt/jmx.jar=9404:/opt/jmx.yml",
        "-javaagent:/opt/jmx.jar=127.0.0.1:9404:/opt/jmx.yml",
        "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=https://idp/token",
    ],
)
def test_an_option_of_kafka_and_of_java_is_shown(text: str) -> None:
    assert shown_options(text) == text


@pytest.mark.parametrize(
    ("word", "shown"),
    [
        ("-Dagent.login=admin S3CRET", "-Dagent.login=[hidden]"),
        ('-Dagent.login=a"S3CRET', "-Dagent.login=[hidden]"),
        ("-Dagent.login='a' S3CRET\nS3CRET", "-Dagent.login=[hidden]"),
        ("-javaagent:/opt/agent.jar=tenant=a b,key=S3CRET", "-javaagent:/opt/agent.jar=[hidden]"),
        ("-Dkafka.logs.dir=/var/log/the kafka", "-Dkafka.logs.dir=/var/log/the…"),
        ("-Xmx6g", "-Xmx6g"),
    ],
)
def test_a_blank_or_a_quote_ends_no_value_of_a_process(word: str, shown: str) -> None:
    assert shown_option(word) == shown
