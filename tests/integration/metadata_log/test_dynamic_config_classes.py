"""Kafka's own classes that load dynamic configuration, on the jars of every generation of releases."""

from __future__ import annotations

import pytest
from py4j.protocol import Py4JJavaError

from kafka_rollout.metadata_log.classes import node_configs
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.node_configs import KAFKA_CONFIG, plain_properties
from kafka_rollout.model.configs import HIDDEN, ConfigCheck, ConfigKind, ConfigProblem, DynamicConfigs
from kafka_rollout.releases.documents.catalogue import load_catalogue
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from tests.releases import NEWEST
from tools.demo.folder import PROJECT_ROOT

pytestmark = [pytest.mark.jvm, pytest.mark.usefixtures("one_java_per_release")]

BROKER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/nowhere",
}
VALID = DynamicConfigs(
    topics={"orders": {"retention.ms": "100000", "cleanup.policy": "compact"}},
    brokers={1: {"log.retention.ms": "100000", "leader.replication.throttled.rate": "1000"}},
    all_brokers={"log.cleaner.threads": "2"},
    groups={"billing": {"consumer.session.timeout.ms": "50000"}},
    subscriptions={"latency": {"metrics": "a", "interval.ms": "1000", "match": "client_id=a.*"}},
    quotas={
        (("user", "alice"), ("client-id", None)): {"producer_byte_rate": 1.0, "request_percentage": 5.0},
        (("ip", "127.0.0.1"),): {"connection_creation_rate": 5.0},
    },
)
WRONG = DynamicConfigs(
    topics={
        "orders": {"retention.ms": "many", "own.name": "1"},
        "secret": {"own.name": HIDDEN, "own.other": HIDDEN, "retention.ms": "1"},
        "equal": {"retention.ms": "many", "own.name": "1"},
        "good": {"retention.ms": "1"},
    },
    brokers={1: {"log.retention.bytes": "many", "node.id": "7"}},
    all_brokers={"listeners": "PLAINTEXT://:1", "num.io.threads": "0"},
    groups={"billing": {"consumer.session.timeout.ms": "0", "own.name": "1"}},
    subscriptions={"latency": {"interval.ms": "1"}, "other": {"own.name": "1"}},
    quotas={(("user", "alice"),): {"own_rate": 1.0}},
)
CATALOGUE = load_catalogue(PROJECT_ROOT / "include")
GENERATIONS = ("3.4.1", "3.7.2", "3.9.1", "4.0.1", "4.1.1", "4.2.1", "4.3.1", NEWEST)
EVERY = [each for each in GENERATIONS if Release.parse(each) in CATALOGUE]
IN_EVERY_RUN = {"3.4.1", "4.3.1"}
FIRST_THAT_DROPS = Release(4, 2, 1)
TYPES = {ConfigKind.GROUP: "GROUP", ConfigKind.CLIENT_METRICS: "CLIENT_METRICS"}


@pytest.fixture(params=[pytest.param(each, marks=() if each in IN_EVERY_RUN else pytest.mark.full) for each in EVERY])
def release(request: pytest.FixtureRequest) -> Release:
    return Release.parse(request.param)


def problems(cache: ReleaseCache, release: Release, dynamic: DynamicConfigs) -> tuple[ConfigProblem, ...]:
    return JvmKafkaClasses(cache).dynamic_config_problems(release, {1: BROKER}, dynamic)


def test_a_release_has_the_classes_of_every_kind_that_it_supports(
    release_cache: ReleaseCache, release: Release
) -> None:
    supported = CATALOGUE.get(release).config_resources
    found = problems(release_cache, release, VALID)
    assert {one.check for one in found} <= {ConfigCheck.MISSING}
    assert {TYPES[one.kind] for one in found} == set(TYPES.values()) - supported


def test_every_wrong_setting_is_found_with_its_name_and_value(release_cache: ReleaseCache, release: Release) -> None:
    found = {
        (one.kind, one.name, *one.settings): one.check
        for one in problems(release_cache, release, WRONG)
        if one.check is not ConfigCheck.MISSING
    }
    drops = release >= FIRST_THAT_DROPS
    unknown = ConfigCheck.DROPPED if drops else ConfigCheck.NAME
    expected = {
        (ConfigKind.TOPIC, "orders", ("retention.ms", "many")): ConfigCheck.VALUE,
        (ConfigKind.TOPIC, "orders", ("own.name", "1")): unknown,
        (ConfigKind.TOPIC, "equal", ("retention.ms", "many")): ConfigCheck.VALUE,
        (ConfigKind.TOPIC, "equal", ("own.name", "1")): unknown,
        (ConfigKind.TOPIC, "secret", ("own.name", HIDDEN), ("own.other", HIDDEN)): unknown,
        (ConfigKind.BROKER, "1", ("log.retention.bytes", "many")): ConfigCheck.VALUE,
        (ConfigKind.BROKER, "1", ("node.id", "7")): ConfigCheck.VALUE,
        (ConfigKind.ALL_BROKERS, "", ("listeners", "PLAINTEXT://:1")): ConfigCheck.VALUE,
        (ConfigKind.ALL_BROKERS, "", ("num.io.threads", "0")): ConfigCheck.VALUE,
        (ConfigKind.QUOTA, "user alice", ("own_rate", "1.0")): ConfigCheck.NAME,
    }
    supported = CATALOGUE.get(release).config_resources
    if "CLIENT_METRICS" in supported:
        expected |= {
            (ConfigKind.CLIENT_METRICS, "latency", ("interval.ms", "1")): ConfigCheck.VALUE,
            (ConfigKind.CLIENT_METRICS, "other", ("own.name", "1")): unknown if drops else ConfigCheck.VALUE,
        }
    if "GROUP" in supported:
        expected |= {
            (ConfigKind.GROUP, "billing", ("consumer.session.timeout.ms", "0")): ConfigCheck.VALUE,
            (ConfigKind.GROUP, "billing", ("own.name", "1")): unknown,
        }
    assert found == expected


def test_a_controller_rejects_a_change_that_leaves_an_unknown_setting(
    release_cache: ReleaseCache, release: Release
) -> None:
    """It validates all settings of the resource after the change, in every release."""
    with run_jvm(release_cache.libs(release)) as jvm:
        found = jvm.packages.java.lang.Class.forName("kafka.server.ControllerConfigurationValidator")
        (constructor,) = found.getConstructors()
        config = jvm.static(KAFKA_CONFIG).fromProps(plain_properties(jvm, BROKER), False)
        arguments = [config][: constructor.getParameterCount()]  # before 3.6: none
        validator = jvm.packages.kafka.server.ControllerConfigurationValidator(*arguments)
        parameters = max(one.getParameterCount() for one in found.getMethods() if one.getName() == "validate")
        resource = jvm.static("org.apache.kafka.common.config.ConfigResource")
        for kind in ("TOPIC", *({"GROUP"} & CATALOGUE.get(release).config_resources)):
            settings = jvm.packages.java.util.HashMap()
            settings.put("own.name", "1")
            before = [settings] * (parameters - 2)
            with pytest.raises(Py4JJavaError, match=f"Unknown {kind.lower()} config name: own.name"):
                validator.validate(resource(resource.Type.valueOf(kind), "orders"), settings, *before)


MOVED = {
    "_LOG_CONFIG": {ConfigKind.TOPIC},
    "_GROUP_CONFIG": {ConfigKind.GROUP},
    "_CLIENT_METRICS": {ConfigKind.CLIENT_METRICS},
    "_QUOTA_CONFIG": {ConfigKind.QUOTA},
    "_SUPPORTED_CONFIGS": {ConfigKind.TOPIC, ConfigKind.GROUP, ConfigKind.CLIENT_METRICS},
}


@pytest.mark.parametrize(("lookup", "kinds"), MOVED.items(), ids=MOVED)
def test_a_class_that_was_moved_is_a_gap_of_its_kind_and_not_a_pass(
    release_cache: ReleaseCache, monkeypatch: pytest.MonkeyPatch, lookup: str, kinds: set[ConfigKind]
) -> None:
    monkeypatch.setattr(node_configs, lookup, ("org.apache.kafka.moved.Away",))
    found = problems(release_cache, Release(4, 3, 1), VALID)
    assert {one.kind for one in found if one.check is ConfigCheck.MISSING} >= kinds
    assert all("org.apache.kafka.moved.Away" in one.reason for one in found)


def test_topics_are_validated_although_the_file_of_the_node_is_rejected(release_cache: ReleaseCache) -> None:
    rejected = {1: {**BROKER, "log.segment.bytes": "20000"}}
    found = JvmKafkaClasses(release_cache).dynamic_config_problems(Release(4, 3, 1), rejected, WRONG)
    assert (ConfigKind.TOPIC, "orders") in {(one.kind, one.name) for one in found}
