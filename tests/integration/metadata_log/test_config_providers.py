"""Configurations with config providers, validated by Kafka's own classes on real jars.

A node resolves `${provider:path:key}` on its host. The classes run on this machine, so they must resolve nothing: the
environment and the files here belong to the tool.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from py4j.protocol import Py4JJavaError

from kafka_rollout.metadata_log.classes.images import sentence_of
from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses
from kafka_rollout.metadata_log.classes.node_configs import java_properties
from kafka_rollout.model.configs import ConfigKind, ConfigProblem, DynamicConfigs
from kafka_rollout.model.starts import NodeStart, StartProblems
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import run_jvm
from tests.integration.harness.start_checks import rejected

pytestmark = pytest.mark.jvm

CONTROLLER = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@127.0.0.1:9093",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/nowhere",
}
SECRET = "s3cret-of-the-worker"
VARIABLE = "AIRFLOW_CONN_KAFKA_ORDERS"
PROVIDERS = "org.apache.kafka.common.config.provider"
OWN = {
    "config.providers": "env,dir,file",
    "config.providers.env.class": f"{PROVIDERS}.EnvVarConfigProvider",
    "config.providers.dir.class": f"{PROVIDERS}.DirectoryConfigProvider",
    "config.providers.file.class": f"{PROVIDERS}.FileConfigProvider",
}
OLD, NEW = Release(3, 9, 1), Release(4, 3, 1)


@pytest.fixture(scope="module")
def classes(release_cache: ReleaseCache) -> JvmKafkaClasses:
    return JvmKafkaClasses(release_cache)


@pytest.fixture(params=[pytest.param(OLD, marks=pytest.mark.full), NEW], ids=str)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture
def references(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[str, ...]:
    """References to a secret of this machine, by each of the providers that every release has."""
    monkeypatch.setenv(VARIABLE, SECRET)
    (tmp_path / "id_ed25519").write_text(SECRET)
    (tmp_path / "secrets.properties").write_text(f"key={SECRET}\n")
    return (
        f"${{env:{VARIABLE}}}",
        f"${{dir:{tmp_path}:id_ed25519}}",
        f"${{file:{tmp_path / 'secrets.properties'}:key}}",
    )


def dynamic_problems(
    classes: JvmKafkaClasses, release: Release, static: dict[str, str], dynamic: DynamicConfigs
) -> tuple[ConfigProblem, ...]:
    return classes.dynamic_config_problems(release, dict.fromkeys([1, *dynamic.brokers], static), dynamic)


def test_a_file_reads_no_secret_of_this_machine(
    classes: JvmKafkaClasses, release: Release, references: tuple[str, ...]
) -> None:
    threads = dict(zip(("num.io.threads", "num.network.threads", "background.threads"), references, strict=True))
    problems = rejected(classes, release, {**CONTROLLER, **OWN, **threads})
    assert SECRET not in str(problems)
    assert problems == ()


def test_dynamic_settings_read_no_secret_of_this_machine(
    classes: JvmKafkaClasses, release: Release, references: tuple[str, ...]
) -> None:
    names = ("num.io.threads", "num.network.threads", "background.threads")
    found = dynamic_problems(
        classes,
        release,
        {**CONTROLLER, **OWN},
        DynamicConfigs(
            all_brokers={**dict(zip(names, references, strict=True)), "log.cleaner.threads": "2"},
            brokers={number: {"advertised.listeners": one} for number, one in enumerate(references, 1)},
            topics={f"orders-{number}": {"retention.ms": one} for number, one in enumerate(references)},
        ),
    )
    assert SECRET not in str(found)
    assert {one.kind for one in found} <= {ConfigKind.ALL_BROKERS, ConfigKind.BROKER, ConfigKind.TOPIC}


@pytest.mark.parametrize("provider", ["vault", "file"])
def test_a_provider_that_exists_on_the_node_only_is_no_problem(
    classes: JvmKafkaClasses, release: Release, provider: str
) -> None:
    """The class is not in the release's jars, and the file is not on this machine."""
    named = {"vault": "com.example.VaultConfigProvider", "file": f"{PROVIDERS}.FileConfigProvider"}[provider]
    properties = {
        **CONTROLLER,
        "config.providers": provider,
        f"config.providers.{provider}.class": named,
        "ssl.keystore.password": f"${{{provider}:/etc/kafka/secrets.properties:password}}",
    }
    found = problems_of(classes, release, properties)
    assert found.rejected == ()
    assert [one.name for one in found.plugins] == ([named] if provider == "vault" else [])
    dynamic = DynamicConfigs(all_brokers={"log.cleaner.threads": "2"}, topics={"orders": {"retention.ms": "1000"}})
    assert dynamic_problems(classes, release, properties, dynamic) == ()
    # The rest is still validated.
    (problem,) = problems_of(classes, release, {**properties, "num.io.threads": "many"}).rejected
    assert problem == "Invalid value many for configuration num.io.threads: Not a number of type INT"


_SETTINGS = (
    "node.id",
    "broker.id",
    "process.roles",
    "controller.quorum.voters",
    "listeners",
    "advertised.listeners",
    "controller.listener.names",
    "listener.security.protocol.map",
    "inter.broker.listener.name",
    "log.dirs",
)


@pytest.mark.parametrize("roles", ["broker", "controller", "broker,controller"])
def test_every_setting_can_come_from_a_provider(release_cache: ReleaseCache, release: Release, roles: str) -> None:
    listeners = {"broker": "INSIDE://:9092", "controller": "CONTROLLER://:9093"}
    properties = {
        **CONTROLLER,
        "process.roles": roles,
        "controller.quorum.voters": "1@127.0.0.1:9093" if "controller" in roles else "2@127.0.0.1:9093",
        "listeners": ",".join(listeners[role] for role in roles.split(",")),
        "listener.security.protocol.map": "INSIDE:SASL_SSL,CONTROLLER:SSL",
        "inter.broker.listener.name": "INSIDE",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.enabled.mechanisms": "PLAIN",
        **({"advertised.listeners": "INSIDE://a:9092"} if "broker" in roles else {}),
        "config.providers": "vault",
        "config.providers.vault.class": "com.example.VaultConfigProvider",
    }
    with run_jvm(release_cache.libs(release)) as jvm:

        def problem(config: dict[str, str]) -> str:
            try:
                jvm.packages.kafka.server.KafkaConfig.fromProps(java_properties(jvm, config), False)
            except Py4JJavaError as error:
                return sentence_of(error)
            return ""

        assert problem(properties) == ""
        for setting in _SETTINGS:
            unknown = {**properties, setting: "${vault:kafka:value}"}
            assert problem(unknown) == "", setting
            assert "num.io.threads" in problem({**unknown, "num.io.threads": "0"}), setting
        every = {**properties, **dict.fromkeys(_SETTINGS, "${vault:kafka:value}")}
        assert problem(every) == ""


def test_the_value_of_a_password_is_in_no_sentence(classes: JvmKafkaClasses, release: Release) -> None:
    """A plugin's own setting has no type, so that its value counts as a secret."""
    wrong = {"ssl.key.password": "hunter2", "com.example.token": "correct-horse-battery"}
    for value in wrong.values():
        problems = rejected(classes, release, {**CONTROLLER, **wrong, "log.retention.ms": value})
        sentence = "Invalid value [hidden] for configuration log.retention.ms: Not a number of type LONG"
        assert problems == (sentence,)
        dynamic = DynamicConfigs(topics={"orders": {"retention.ms": value}})
        (found,) = dynamic_problems(classes, release, {**CONTROLLER, **wrong}, dynamic)
        assert found.reason == sentence.replace("log.", "")


def test_the_classes_get_no_environment_of_this_process(
    release_cache: ReleaseCache, release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, SECRET)
    with run_jvm(release_cache.libs(release)) as jvm:
        variables = dict(jvm.packages.java.lang.System.getenv())
    assert VARIABLE not in variables
    assert set(variables) <= {"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LC_CTYPE", "PWD"}


def test_a_provider_that_an_older_release_does_not_have_ends_its_start(classes: JvmKafkaClasses) -> None:
    env = {**CONTROLLER, "config.providers": "env", "config.providers.env.class": OWN["config.providers.env.class"]}
    assert rejected(classes, OLD, env) == ()
    (sentence,) = rejected(classes, Release(3, 4, 1), env)
    assert "EnvVarConfigProvider of config.providers.env.class is not on the class path" in sentence
    assert rejected(classes, Release(3, 4, 1), {**env, "config.providers": ""}) == ()


def problems_of(classes: JvmKafkaClasses, release: Release, properties: dict[str, str]) -> StartProblems:
    return classes.start_problems(release, {1: NodeStart(properties=properties)})[1]
