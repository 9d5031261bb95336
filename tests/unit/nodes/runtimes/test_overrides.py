"""Which settings the command line of the next start has: the unit's and its scripts', or those of the process."""

from __future__ import annotations

import pytest

from kafka_rollout.nodes.runtimes.hosts.overrides import next_overrides

START = "/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties"
JAAS = 'sasl.jaas.config=org.x.Module required username="a b" password="c;d";'


def process(*settings: str) -> list[str]:
    words = [word for one in settings for word in ("--override", one)]
    return ["java", "-cp", "x", "kafka.Kafka", "/etc/kafka/server.properties", *words]


@pytest.mark.parametrize(
    ("command", "of_process", "expected"),
    [
        (START, (), {}),
        (START, ("a=b",), {}),
        (f"{START} --override a=b", (), {"a": "b"}),
        (f"{START} --override a=c --override=d=e=f", ("a=b",), {"a": "c", "d": "e=f"}),
        (f"{START} --override {JAAS} --override a=b", ("a=b",), {"sasl.jaas.config": JAAS.partition("=")[2], "a": "b"}),
        (f"{START} --override a=$${{file:/x:y}}", (), {"a": "${file:/x:y}"}),
        (f"/bin/sh -c exec {START} --override 'a=b c' > /x/log 2>&1", (), {"a": "b c"}),
        (f"/bin/sh -c exec {START} > /x/log 2>&1 || echo --override a=b", ("a=b",), {}),
        (f"/bin/su kafka -c '{START} --override a=b'", (), {"a": "b"}),
        ("/usr/bin/java -cp x kafka.Kafka /etc/kafka/server.properties --override a=b", (), {"a": "b"}),
    ],
)
def test_what_the_unit_says_counts_for_the_next_start(
    command: str, of_process: tuple[str, ...], expected: dict[str, str]
) -> None:
    assert next_overrides(process(*of_process), [command], ()) == expected
    assert next_overrides(["bash"], [command], ()) == expected


@pytest.mark.parametrize(
    ("command", "wrapper"),
    [
        (f"{START} --override {JAAS}", ()),
        (f"{START} --override   sasl.jaas.config=org.x.Module required username=a b  password=c;d;", ()),
        (f"{START} $ARGUMENTS", ()),
        ("/usr/local/bin/start", (f'exec {START} "$@"',)),
        ("/usr/local/bin/start", (f'exec {START} "${{ARGS[@]}}"',)),
        ("/usr/local/bin/start", (f"exec {START} --override '{JAAS}'",)),
        ("/usr/local/bin/start", ("if [ -x /opt/kafka/bin/kafka-server-start.sh ]; then", 'exec "$START" /etc/x')),
        ("/usr/local/bin/start", ()),
        ("/usr/bin/docker start kafka", ()),
    ],
)
def test_a_command_that_says_the_same_or_is_not_known_leaves_the_settings_of_the_process(
    command: str, wrapper: tuple[str, ...]
) -> None:
    assert next_overrides(process(JAAS), [command], wrapper) == {"sasl.jaas.config": JAAS.partition("=")[2]}


def test_a_script_of_the_unit_says_what_it_starts_now() -> None:
    lines = ("test -x /opt/kafka/bin/kafka-server-start.sh || exit 1", f"exec {START} --override a=c >> /x/log 2>&1")
    assert next_overrides(process("a=b"), ["/usr/local/bin/start"], lines) == {"a": "c"}
    several = (f"exec {START} --override a=b", f"exec {START} --override a=c")
    assert next_overrides(process("a=b"), ["/usr/local/bin/start"], several) == {"a": "b"}
    assert next_overrides(process("a=d"), ["/usr/local/bin/start"], several) == {"a": "c"}
