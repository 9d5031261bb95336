"""What this tool reads in client.properties is what Kafka's Java clients read: names of settings, classes, JAAS."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from contextlib import suppress

import pytest
from py4j.protocol import Py4JJavaError

from kafka_rollout.client.security import credentials
from kafka_rollout.client.security.java_settings import KAFKAS_CLASSES, OF_BROKERS, WITHOUT_EFFECT
from kafka_rollout.formats.jaas import parse_jaas
from kafka_rollout.metadata_log.classes.node_configs import config_definitions
from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from kafka_rollout.releases.jvm.jvm import Jvm, run_jvm

pytestmark = pytest.mark.jvm

CLIENTS = ("admin.AdminClientConfig", "producer.ProducerConfig", "consumer.ConsumerConfig")
# They change the login or its protection, and the other client libraries have no equal.
REFUSED = re.compile(r"security\.providers|ssl\.cipher\.suites|sasl\.oauthbearer\.assertion\..+")
OLD, NEW = Release(3, 9, 1), Release(4, 4, 0)


@pytest.fixture(scope="module", params=[OLD, NEW], ids=str)
def jvm(request: pytest.FixtureRequest, release_cache: ReleaseCache) -> Iterator[Jvm]:
    with run_jvm(release_cache.libs(request.param)) as found:
        yield found


def security(names: object) -> set[str]:
    return {str(name) for name in names if str(name).startswith(credentials._PREFIXES)}  # type: ignore[attr-defined]


def test_every_name_that_a_java_client_reads_is_used_without_effect_or_refused(jvm: Jvm) -> None:
    read = {name for one in CLIENTS for name in security(jvm.static(f"org.apache.kafka.clients.{one}").configNames())}
    assert len(read) > 40
    kinds = {
        name: (
            name in {*credentials._USED, *KAFKAS_CLASSES},
            WITHOUT_EFFECT.fullmatch(name) is not None,
            REFUSED.fullmatch(name) is not None,
        )
        for name in read
    }
    assert {name: kind for name, kind in kinds.items() if sum(kind) != 1} == {}
    of_brokers = security(config_definitions(jvm).names())
    assert of_brokers - read == OF_BROKERS


def test_the_accepted_classes_are_kafkas(jvm: Jvm) -> None:
    names = {name for classes in KAFKAS_CLASSES.values() for name in classes}
    since_4_1 = {name for name in names if name.endswith(("JwtRetriever", "JwtValidator"))}
    until_3_9 = {name for name in names if ".secured." in name}
    has_new = jvm.find_class("org.apache.kafka.common.security.oauthbearer.DefaultJwtRetriever") is not None
    absent = {name for name in names if jvm.find_class(name) is None}
    assert absent == (until_3_9 if has_new else since_4_1)


PARTS = (
    *("a.b.PlainLoginModule", "required", "optional", "Required", "none", "username", "password", "=", ";", " ", "\n"),
    *(
        '"',
        "'",
        '"a b"',
        "'x'",
        '"a\\n\\101\\8"',
        '"a\\',
        "\\",
        "/",
        "//",
        "/*",
        "*/",
        "/* c */",
        "// c\n",
        "-",
        ".",
        "1",
    ),
    *(
        "12.5",
        "-a",
        "a-1",
        "$",
        "_",
        "\r",
        "\t",
        "\x00",
        "\x7f",
        "\x85",
        "\xa0",
        "\xe9",
        "\u20ac",
        "\U0001f600",
        "=1",
        "=x",
        ",",
    ),
)
WHOLE = "a.b.PlainLoginModule required username=\"a b\" password='x' k=v;"


def texts() -> Iterator[str]:
    chosen = random.Random(39)
    for _ in range(400):
        text = list(WHOLE)
        for _ in range(chosen.randint(1, 3)):
            text.insert(chosen.randrange(len(text) + 1), chosen.choice(PARTS))
        yield "".join(text)
    for _ in range(300):
        head = "a.b.M required " if chosen.random() < 0.7 else ""
        yield head + "".join(chosen.choice(PARTS) for _ in range(chosen.randint(0, 9))) + chosen.choice((";", ""))


def test_login_modules_are_read_as_kafka_reads_them(jvm: Jvm) -> None:
    """Kafka's JaasContext is the judge: it accepts the same texts, with the same module and options."""
    password = jvm.static("org.apache.kafka.common.config.types.Password")
    context, accepted, asked, different = jvm.static("org.apache.kafka.common.security.JaasContext"), 0, 0, []
    for text in texts():
        ours: object = None
        theirs: object = None
        with suppress(ValueError):
            ours = parse_jaas(text)
        configs = jvm.packages.java.util.HashMap()
        configs.put("sasl.jaas.config", password(text))
        with suppress(Py4JJavaError):
            (entry,) = context.loadClientContext(configs).configurationEntries()
            options = {str(key): str(value) for key, value in dict(entry.getOptions()).items() if key is not None}
            theirs = (str(entry.getLoginModuleName()), options)
        asked, accepted = asked + 1, accepted + (theirs is not None)
        if ours != theirs:
            different.append((text, ours, theirs))
    assert different == []
    assert 50 < accepted < asked - 50
