"""Metrics of exporters with other rules than ours, through the reader and a real HTTP server."""

from __future__ import annotations

import gzip
import json
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from kafka_rollout.base.errors import TransientError
from kafka_rollout.model.state import ClientSoftware, RequestCount
from kafka_rollout.model.topology import NodeSpec, Role
from kafka_rollout.nodes import metrics as node_metrics
from kafka_rollout.nodes.metrics import NodeMetricsReader
from kafka_rollout.releases.facts import Release
from tests.paths import FIXTURES

NODE = NodeSpec(node_id=1, name="broker-1", roles=frozenset({Role.BROKER}), broker_address="127.0.0.1:1")
LEVEL = "kafka_server_metadataloader_currentmetadataversion 30.0\n"
# What the rules of each project make of the same MBeans; names and labels as its file has them.
KRAFT_EXAMPLE = f"""\
{LEVEL}kafka_server_metadataloader_finalizedlevel{{featureName="groupVersion"}} 1.0
kafka_server_snapshotemitter_latestsnapshotgeneratedagems 900.0
kafka_server_snapshotemitter_latestsnapshotgeneratedbytes 4096.0
kafka_controller_kafkacontroller_globalpartitioncount 120.0
jvm_runtime_info{{runtime="x",vendor="y",version="17.0.9+9"}} 1.0
"""
STRIMZI = (
    KRAFT_EXAMPLE
    + """\
kafka_server_socket_server_metrics_connections_software{clientSoftwareName="apache-kafka-java",\
clientSoftwareVersion="3.9.1",listener="A",networkProcessor="0"} 2.0
kafka_server_socket_server_metrics_connections_software{clientSoftwareName="apache-kafka-java",\
clientSoftwareVersion="3.9.1",listener="A",networkProcessor="1"} 1.0
"""
)
CONFLUENT = (
    KRAFT_EXAMPLE.replace("featureName", "featurename")
    + """\
kafka_server_socketservermetrics_connections{client_software_name="apache-kafka-java",\
client_software_version="3.9.1",listener="A",network_processor="0"} 3.0
kafka_server_socketservermetrics_connection_count{listener="A",network_processor="0"} 9.0
"""
)
WITHOUT_RULES = """\
kafka_server_MetadataLoader_Value{name="CurrentMetadataVersion"} 30.0
kafka_server_MetadataLoader_Value{name="FinalizedLevel",featureName="groupVersion"} 1.0
kafka_server_SnapshotEmitter_Value{name="LatestSnapshotGeneratedAgeMs"} 900.0
kafka_server_SnapshotEmitter_Value{name="LatestSnapshotGeneratedBytes"} 4096.0
kafka_controller_KafkaController_Value{name="GlobalPartitionCount"} 120.0
jvm_runtime_info{runtime="x",vendor="y",version="17.0.9+9"} 1.0
kafka_server_socket_server_metrics_connections{clientSoftwareName="apache-kafka-java",\
clientSoftwareVersion="3.9.1",listener="A",networkProcessor="0"} 3.0
kafka_network_RequestMetrics_Count{name="DeprecatedRequestsPerSec",request="Produce",version="2",\
clientSoftwareName="old",clientSoftwareVersion="0.9"} 7.0
"""

Serve = Callable[[str | bytes], NodeSpec]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Start an exporter with this text; returns a node with its URL. Without a text, it refuses."""
    texts: list[str | bytes] = []

    class Exporter(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = texts[int(self.path.partition("?")[0].strip("/"))]
            self.rfile.read(int(self.headers.get("content-length", 0)))
            self.send_response(200 if text else 401)
            if isinstance(text, bytes):
                self.send_header("content-encoding", "gzip")
            self.end_headers()
            with suppress(ConnectionError):
                self.wfile.write(text if isinstance(text, bytes) else text.encode())

        do_POST = do_GET

        def log_message(self, *_: object) -> None:
            """Nothing is printed."""

    server = HTTPServer(("127.0.0.1", 0), Exporter)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()

    def start(text: str | bytes) -> NodeSpec:
        texts.append(text)
        return replace(NODE, prometheus_url=f"http://127.0.0.1:{server.server_port}/{len(texts) - 1}")

    yield start
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize("text", [KRAFT_EXAMPLE, STRIMZI, CONFLUENT, WITHOUT_RULES])
def test_common_rules_are_known(serve: Serve, text: str) -> None:
    seen = NodeMetricsReader().read(serve(text))
    assert seen.current_metadata_version_prometheus == 30
    assert seen.finalized_levels == {"group.version": 1}
    assert (seen.snapshot_age_ms, seen.snapshot_bytes, seen.partition_count) == (900, 4096, 120)
    assert (seen.java_version, seen.release) == (17, None)
    software = (ClientSoftware(name="apache-kafka-java", version="3.9.1", connections=3),)
    assert seen.clients == (() if text is KRAFT_EXAMPLE else software)
    assert [found.count for found in seen.deprecated_requests] == ([7] if text is WITHOUT_RULES else [])


@pytest.mark.parametrize(("value", "count"), [("0.0", 1), ("4.9E-324", 1), ("0.3", 1), ("7.0", 7)])
def test_a_rate_of_zero_is_a_client_that_was_idle_for_half_a_day(serve: Serve, value: str, count: int) -> None:
    """Kafka makes the meters of a version and a client at their first request."""
    name = "kafka_network_requestmetrics_requestspersec"
    idle = f'{name}{{request="Fetch",version="3"}} {value}\n'
    named = f'{name.replace("requestsp", "deprecatedrequestsp")}{{request="Fetch",version="3",clientsoftwarename="old",'
    text = f'{LEVEL}{idle}{name}{{request="Metadata",version="12"}} 5.0\n'
    text += f'{named}clientsoftwareversion="0.9"}} {value}\n'
    seen = NodeMetricsReader().read(serve(text))
    assert [(one.api, one.version, one.count) for one in seen.requests] == [("Fetch", 3, count), ("Metadata", 12, 5)]
    assert [(one.client_name, one.count) for one in seen.deprecated_requests] == [("old", count)]


def test_metrics_without_the_labels_that_give_them_a_meaning_are_left_out(serve: Serve) -> None:
    text = LEVEL + "kafka_server_metadataloader_finalizedlevel 1.0\nkafka_server_socketservermetrics_connections 5.0\n"
    seen = NodeMetricsReader().read(serve(text))
    assert (seen.finalized_levels, seen.clients, seen.unanswered) == ({}, (), {})


@pytest.mark.parametrize(
    ("text", "agent", "says"),
    [
        ("[" * 200_000, "jolokia", "nested too deeply"),
        (gzip.compress(b"#" * 1000), "prometheus", "content encoding gzip"),
        ("# a comment\n" * 10_000, "prometheus", "more than 0 MiB"),
    ],
    ids=["deep JSON", "compressed", "endless"],
)
def test_a_response_that_no_agent_sends_is_an_agent_that_does_not_respond(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, text: str | bytes, agent: str, says: str
) -> None:
    if says.startswith("more than"):
        monkeypatch.setattr(node_metrics, "_MOST_MIB", 0)
    node = serve(text)
    if agent == "jolokia":
        node = replace(node, jolokia_url=node.prometheus_url, prometheus_url=None)
    with pytest.raises(TransientError, match=says):
        NodeMetricsReader().read(node)


FENCED, OFFLINE = (
    "kafka_controller_kafkacontroller_fencedbrokercount",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
)


@pytest.mark.parametrize(
    ("odd", "name", "why"),
    [
        (f"{FENCED} NaN", "fenced_brokers", "its value is nan"),
        (f"{FENCED} +Inf", "fenced_brokers", "its value is inf"),
        (f"{FENCED} 1e300", "fenced_brokers", "its value is 1e+300"),
        (f"{FENCED} abc", "fenced_brokers", "its value is nan"),
        (
            f'{FENCED}{{process="a"}} 3.0\n{FENCED}{{process="b"}} 0.0',
            "fenced_brokers",
            "several values, 3 and 0",
        ),
        ('jvm_info{version="unknown"} 1.0', "java", "it is unknown"),
        (f"{LEVEL}kafka_rollout_current_metadata_version 29.0", "current_metadata_version", "several values"),
        ('kafka_rollout_requests{request="Fetch",version="x"} 3.0', "requests", "invalid literal"),
    ],
    ids=["NaN", "infinite", "too big", "no number", "of two processes", "Java", "level", "one label of many"],
)
def test_a_value_that_cannot_be_read_is_unknown_and_the_others_are_not(
    serve: Serve, odd: str, name: str, why: str
) -> None:
    others = f'{OFFLINE} 2.0\nkafka_rollout_requests{{request="Produce",version="9"}} 4.0\njava_x 1.0\n'
    seen = NodeMetricsReader().read(serve(f"{others}{odd}\n"))
    assert seen.counters == {"offline_partitions": 2}
    assert (seen.java_version, seen.current_metadata_version_prometheus) == (None, None)
    assert [one.api for one in seen.requests] == ([] if name == "requests" else ["Produce"])
    (text,) = seen.unreadable
    assert text.startswith(f"prometheus: {name}: ")
    assert why in text


def test_an_early_release_of_java_has_a_version(serve: Serve) -> None:
    assert NodeMetricsReader().read(serve(f'{LEVEL}jvm_info{{version="25-ea+12"}} 1.0\n')).java_version == 25
    both = f'{LEVEL}jvm_info{{version="17.0.15+6-Debian-1"}} 1.0\njvm_runtime_info{{version="17"}} 1.0\n'
    read = NodeMetricsReader().read(serve(both))
    assert (read.java_version, read.unreadable) == (17, ())


@pytest.mark.parametrize(
    "line",
    [
        'kafka_server_app_info{client_id="1",Version="3.9.1"} 1.0',
        'kafka_server_app_info{id="1",version="3.9.1"} 1.0\nkafka_server_app_info{id="1",commitId="abc"} 1.0',
        'kafka_server_app_info_version{broker_id="1",value="3.9.1"} 1.0',
        'kafka_server_app_info_Version{id="1",Value="3.9.1"} 1.0',
    ],
)
def test_the_release_is_the_label_into_which_rules_put_the_attribute_version(serve: Serve, line: str) -> None:
    assert NodeMetricsReader().read(serve(f"{LEVEL}{line}\n")).release == Release(3, 9, 1)


def test_rates_of_remote_errors_keep_their_fraction_with_our_rules_and_without_rules(serve: Serve) -> None:
    ours = "kafka_rollout_remote_copy_errors 0.016\nkafka_rollout_remote_fetch_errors 0.0\n"
    # Without rules, each topic has the same meter.
    bare = """\
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteCopyErrorsPerSec"} 0.016
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteCopyErrorsPerSec",topic="orders"} 7.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteFetchErrorsPerSec",topic="orders"} 7.0
kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteFetchErrorsPerSec"} 0.0
"""
    for text in (ours, bare):
        counters = NodeMetricsReader().read(serve(text)).counters
        assert counters == {"remote_copy_errors": 0.016, "remote_fetch_errors": 0.0}


def test_jolokia_reports_rates_with_their_fraction_and_no_value_without_tiered_storage(serve: Serve) -> None:
    def answered(name: str, mbean: str) -> dict[str, object]:
        if name == "remote_copy_errors":
            return {"status": 200, "value": 0.016}
        return {"status": 200, "value": 3} if name == "active_brokers" else {"status": 404, "error": mbean}

    text = json.dumps([answered(name, mbean) for name, (mbean, _) in node_metrics._READS.items()])
    node = serve(text)
    seen = NodeMetricsReader().read(replace(node, jolokia_url=node.prometheus_url, prometheus_url=None))
    assert seen.counters == {"remote_copy_errors": 0.016, "active_brokers": 3}


def test_an_attribute_that_jolokia_cannot_read_is_unknown_alone(serve: Serve) -> None:
    answers = {"app": {"status": 200, "value": {"a:type=app-info,id=1": {"Version": "3.9.1"}}}, "java": {"status": 500}}
    text = json.dumps([answers.get(name, {"status": 404}) for name in node_metrics._READS])
    node = serve(text)
    seen = NodeMetricsReader().read(replace(node, jolokia_url=node.prometheus_url, prometheus_url=None))
    assert (seen.release, seen.java_version) == (Release(3, 9, 1), None)
    assert seen.unreadable == ("jolokia: java: java.lang:type=Runtime has response status 500",)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"status":403,"error":"HTTP method POST is not allowed"}', "status 403: HTTP method POST is not allowed"),
        ("[1]", "does not answer each of the requests"),
        (403, "its policy (jolokia-access.xml) does not permit"),
        (404, "has no MBean of Kafka"),
    ],
)
def test_what_jolokia_says_is_the_reason_and_not_what_python_says(serve: Serve, text: str | int, says: str) -> None:
    if isinstance(text, int):
        answers = [
            {"status": 200, "value": "17"} if mbean.startswith("java") else {"status": text}
            for mbean, _ in node_metrics._READS.values()
        ]
        text = json.dumps(answers)
    node = serve(text)
    with pytest.raises(TransientError, match=re.escape(says)):
        NodeMetricsReader().read(replace(node, jolokia_url=node.prometheus_url, prometheus_url=None))


@pytest.mark.parametrize("value", ["NaN", 10**400, None, "1e300"])
def test_a_value_that_is_none_of_a_counter_is_unknown_alone(serve: Serve, value: object) -> None:
    answers = {"offline_partitions": {"status": 200, "value": value}, "partitions": {"status": 200, "value": "7"}}
    node = serve(json.dumps([answers.get(name, {"status": 404}) for name in node_metrics._READS]))
    seen = NodeMetricsReader().read(replace(node, jolokia_url=node.prometheus_url, prometheus_url=None))
    assert (seen.partition_count, "offline_partitions" in seen.counters) == (7, False)
    assert [one.split(":")[1] for one in seen.unreadable] == [" offline_partitions"]


def test_the_agent_of_another_node_is_refused(serve: Serve) -> None:
    """app-info has the id of the node that registered it."""
    assert NODE.node_id == 1
    for text in (
        'kafka_server_app_info_version{id="7",version="3.9.1"} 1\n',
        'kafka_server_app_info_version_total{broker_id="7",version="3.9.1"} 1.0\n',
        'kafka_rollout_app{id="7",version="3.9.1"} 1.0\n',
    ):
        with pytest.raises(TransientError, match=r"prometheus: http://\S+ is the agent of node 7, not of node 1"):
            NodeMetricsReader().read(serve(LEVEL + text))
        assert NodeMetricsReader().read(serve(LEVEL + text.replace('"7"', '"1"'))).version == "3.9.1"
    answers = {"app": {"status": 200, "value": {"kafka.server:type=app-info,id=7": {"Version": "3.9.1"}}}}
    jolokia = serve(json.dumps([answers.get(name, {"status": 404}) for name in node_metrics._READS]))
    exporter = serve(f'{LEVEL}kafka_rollout_app{{id="1",version="3.9.2"}} 1.0\n')
    seen = NodeMetricsReader().read(replace(exporter, jolokia_url=jolokia.prometheus_url))
    assert (seen.version, list(seen.unanswered)) == ("3.9.2", ["jolokia"])


def test_what_jolokia_may_not_read_is_that_of_the_exporter(serve: Serve) -> None:
    """A jolokia-access.xml can forbid MBeans."""
    answers = {"app": {"status": 403}, "requests": {"status": 403}, "partitions": {"status": 200, "value": 7}}
    jolokia = serve(json.dumps([answers.get(name, {"status": 404}) for name in node_metrics._READS]))
    exporter = serve(
        f'{LEVEL}kafka_rollout_app{{version="3.9.1"}} 1.0\nkafka_rollout_partitions 9.0\n'
        'kafka_rollout_requests{request="Produce",version="9"} 4.0\n'
    )
    seen = NodeMetricsReader().read(replace(exporter, jolokia_url=jolokia.prometheus_url))
    assert (seen.release, seen.partition_count, seen.unanswered) == (Release(3, 9, 1), 7, {})
    assert [(one.api, one.count) for one in seen.requests] == [("Produce", 4)]
    assert [one.partition(" has")[0] for one in seen.unreadable] == [
        "jolokia: app: kafka.server:type=app-info,*",
        "jolokia: requests: kafka.network:type=RequestMetrics,name=RequestsPerSec,*",
    ]


def test_names_of_the_operator_are_those_of_the_inventory(serve: Serve) -> None:
    node = serve('orders_level 29.0\nbuild_info{release="3.9.1",team="x"} 1.0\n')
    names = {"current_metadata_version": "orders_level", "app": "build_info{version=release}"}
    seen = NodeMetricsReader(names=names).read(node)
    assert (seen.current_metadata_version_prometheus, seen.release) == (29, Release(3, 9, 1))
    with pytest.raises(TransientError, match="no metric of Kafka by a known name"):
        NodeMetricsReader().read(node)


EXPORTED = sorted((FIXTURES / "metrics").glob("*.txt"))
WITHOUT_CLIENTS = {"confluent-stacks-controller", "jmx-exporter-kafka-0-8-2", "jmx-exporter-kafka-2-0-0", "koperator",
                   "strimzi-metrics-reporter"}  # fmt: skip
OLD_REQUEST = RequestCount(api="DescribeConfigs", version=0, count=2, client_name="librdkafka", client_version="1.2.0")


@pytest.mark.parametrize("file", EXPORTED, ids=lambda file: file.stem)
def test_requests_clients_and_release_are_found_under_the_names_of_public_rules(serve: Serve, file: Path) -> None:
    """The same MBeans of one broker, to which librdkafka 1.2.0 sent two old requests."""
    seen = NodeMetricsReader().read(serve(file.read_text()))
    (old,) = seen.deprecated_requests
    assert replace(old, api=old.api.lower()) == replace(OLD_REQUEST, api=OLD_REQUEST.api.lower())
    assert ("apiversions", 3) in {(one.api.lower(), one.version) for one in seen.requests}
    assert seen.current_metadata_version_prometheus == 21
    assert (seen.release is not None) == (file.stem in {"koperator", "strimzi-metrics-reporter"})
    librdkafka = ClientSoftware(name="librdkafka", version="1.2.0", connections=1)
    assert (librdkafka in seen.clients) == (file.stem not in WITHOUT_CLIENTS)


def test_a_rate_that_is_small_is_a_request_too(serve: Serve) -> None:
    text = LEVEL + 'kafka_network_requestmetrics_requestspersec{request="Fetch",version="3"} 0.2\n'
    assert [(one.api, one.count) for one in NodeMetricsReader().read(serve(text)).requests] == [("Fetch", 1)]


@pytest.mark.parametrize("file", EXPORTED, ids=lambda file: file.stem)
def test_lines_of_other_metrics_are_not_parsed(serve: Serve, monkeypatch: pytest.MonkeyPatch, file: Path) -> None:
    parsed: list[str] = []

    def parse(text: str) -> Iterator[object]:
        parsed.extend(text.splitlines())
        yield from text_string_to_metric_families(text)

    monkeypatch.setattr(node_metrics, "text_string_to_metric_families", parse)
    other = [
        *(f'kafka_log_Log_Value{{name="Size",topic="orders",partition="{number}"}} 1.0' for number in range(50)),
        'kafka_server_BrokerTopicMetrics_OneMinuteRate{name="RemoteCopyErrorsPerSec",topic="orders"} 7.0',
        'kafka_network_RequestMetrics_99thPercentile{name="TotalTimeMs",request="Fetch"} 7.0',
        "kafka_server_replicamanager_leadercount 7.0",
        "# HELP kafka_server_replicamanager_leadercount text",
    ]
    expected = NodeMetricsReader().read(serve(file.read_text()))
    parsed.clear()
    assert NodeMetricsReader().read(serve(file.read_text() + "\n".join(other) + "\n")) == expected
    assert not set(parsed) & set(other)


_APP = 'kafka_server_app_info{{id="{0}",instance="kafka-{0}:9404",version="4.3.1"}} 1.0\n'
_ERRORS = 'kafka_server_broker_metadata_metrics_metadata_load_error_count{{instance="kafka-{0}:9404"}} 0'


@pytest.mark.parametrize(
    ("page", "says"),
    [
        (
            "".join(map(_APP.format, (1, 2, 3))) + _ERRORS.format(2),
            r"of several processes \(1, 2, 3\): the URL must be",
        ),
        (f"{_ERRORS.format(2)}\n{_ERRORS.format(3)}\n", r"of several processes \(kafka-2:9404, kafka-3:9404\)"),
        (f"{_APP.format(1).strip()} 1699996400000\n", "has values with a time of 3600 s ago"),
        (f"{_APP.format(1)}{_ERRORS.format(1)} 1700003600000\n", "has values with a time of 3600 s later"),
    ],
)
def test_values_of_other_processes_or_of_another_time_are_refused(serve: Serve, page: str, says: str) -> None:
    reader = NodeMetricsReader(now=lambda: 1_700_000_000.0)
    node = serve(page)
    node = replace(node, prometheus_url=f"{node.prometheus_url}?match=hunter2")
    with pytest.raises(TransientError, match=says) as raised:
        reader.read(node)
    assert "hunter2" not in raised.value.sentence


def test_a_page_of_prometheus_with_the_values_of_one_node_of_now_is_read(serve: Serve) -> None:
    reader = NodeMetricsReader(now=lambda: 1_700_000_000.0)
    page = f"{_APP.format(1).strip()} 1699999970000\n{_ERRORS.format(1)} 1699999970000\n"
    assert reader.read(serve(page)).counters == {"metadata_load_errors": 0}


def test_a_refused_request_names_the_status_and_no_url(serve: Serve) -> None:
    node = serve("")
    node = replace(node, prometheus_url=f"{node.prometheus_url}?token=hunter2")
    with pytest.raises(TransientError, match=r"prometheus: status 401\)") as raised:
        NodeMetricsReader().read(node)
    assert "hunter2" not in raised.value.sentence
