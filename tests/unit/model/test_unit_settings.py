"""Which settings of a unit no check reads."""

from __future__ import annotations

import pytest

from kafka_rollout.model.unit_settings import find_stop_actions, find_unknown, parse_settings

# A unit as many sites have it, with the text of `systemctl cat` for a drop-in.
USUAL = """\
# /etc/systemd/system/kafka.service
[Unit]
Description=Apache Kafka
Documentation=https://kafka.apache.org
Requires=network.target remote-fs.target
After=network.target remote-fs.target
ConditionPathExists=/etc/kafka/server.properties
StartLimitIntervalSec=0

[Service]
Type=simple
User=kafka
Group=kafka
Environment=JAVA_HOME=/usr/lib/jvm/java-17 \\
    "KAFKA_HEAP_OPTS=-Xmx4g"
EnvironmentFile=-/etc/default/kafka
ExecStartPre=/bin/sh -c "test -d /var/lib/kafka"
ExecStart=/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties
ExecStop=/opt/kafka/bin/kafka-server-stop.sh
Restart=on-failure
RestartSec=10
SuccessExitStatus=143
TimeoutStopSec=300
LimitNOFILE=100000
OOMScoreAdjust=-900
ProtectSystem=full
PrivateTmp=yes
NoNewPrivileges=true
SystemCallFilter=@system-service
MemoryMax=8G
CPUQuota=200%
SyslogIdentifier=kafka

[Install]
WantedBy=multi-user.target
Alias=broker.service
# /etc/systemd/system/kafka.service.d/own.conf
[X-Site]
Owner=team-x
[Service]
X-Ticket=1
"""


def test_a_usual_unit_has_no_setting_that_no_check_reads() -> None:
    assert find_unknown(parse_settings(USUAL)) == ()


@pytest.mark.parametrize(
    "line",
    [
        "[Unit]\nStopWhenUnneeded=yes",
        "[Unit]\nConflicts=zookeeper.service",
        "[Unit]\nStartLimitBurst=1",
        "[Unit]\nStartLimitIntervalSec=1d",
        "[Unit]\nJobTimeoutSec=5",
        "[Unit]\nConditionPathIsMountPoint=/var/lib/kafka",
        "[Unit]\nConditionPathExistsGlob=!/etc/kafka/no-start*",
        "[Unit]\nConditionFileNotEmpty=!/etc/kafka/no-start",
        "[Unit]\nConditionPathExists=/etc/kafka/%i.properties",
        "[Unit]\nConditionHost=kafka-1",
        "[Service]\nUnsetEnvironment=KAFKA_OPTS",
        "[Service]\nAppArmorProfile=kafka",
        "[Service]\nWatchdogSec=30",
        "[Service]\nNotOfSystemd=1",
        "[Service]\n.include /lib/systemd/system/kafka.service",
    ],
)
def test_a_setting_that_no_check_reads_is_never_harmless_in_silence(line: str) -> None:
    assert find_unknown(parse_settings(f"{USUAL}{line}\n")) == (line.partition("\n")[2],)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("# ExecCondition=/a \\\nStopWhenUnneeded=x\n", ("StopWhenUnneeded=x",)),  # a comment has no second line
        ("; a \\\nStopWhenUnneeded=x\n", ("StopWhenUnneeded=x",)),
        ("Description=a \\\\\nStopWhenUnneeded=x\n", ("StopWhenUnneeded=x",)),  # nor has an escaped backslash
        ("Description=a \\\\\\\nStopWhenUnneeded=x\n", ()),
        ("StopWhenUnneeded=\\\n# a \\\n  x \\\n;b\n  y\nDescription=z", ("StopWhenUnneeded=x    y",)),
        ("Description=a \\\n\nStopWhenUnneeded=x\n", ("StopWhenUnneeded=x",)),  # an empty line ends it
        ("StopWhenUnneeded=x \\", ("StopWhenUnneeded=x",)),
    ],
)
def test_lines_are_joined_as_systemd_joins_them(text: str, expected: tuple[str, ...]) -> None:
    assert find_unknown(parse_settings(f"[Unit]\n{text}")) == expected


def test_a_line_that_a_later_one_empties_does_not_count() -> None:
    assert find_unknown(parse_settings("[Unit]\nStopWhenUnneeded=x.service\nStopWhenUnneeded=\n")) == ()
    text = "[Unit]\nConditionHost=x\nAssertHost=x\nConditionUser=\n"
    assert find_unknown(parse_settings(text)) == ("AssertHost=x",)


@pytest.mark.parametrize(
    ("lines", "signal", "expected"),
    [
        (
            "[Unit]\nOnFailure=heal@%n.service\nFailureAction=reboot\n",
            15,
            ("OnFailure=heal@%n.service", "FailureAction=reboot"),
        ),
        ("[Unit]\nOnFailure=a b\nOnFailure=c\nFailureAction=none\n", None, ("OnFailure=a b", "OnFailure=c")),
        ("[Unit]\nOnFailure=a\n[Service]\nSuccessExitStatus=0 143\n", 15, ()),
        ("[Unit]\nOnFailure=a\n[Service]\nSuccessExitStatus=143\nSuccessExitStatus=\n", 15, ("OnFailure=a",)),
        ("[Unit]\nOnFailure=a\n[Service]\nSuccessExitStatus=SIGTERM\n", 15, ("OnFailure=a",)),
        ("[Unit]\nOnFailure=a\n[Service]\nSuccessExitStatus=143\n", 2, ("OnFailure=a",)),
        ("[Unit]\nOnFailure=a\n[Service]\nSuccessExitStatus=130\n", 2, ()),
        ("[Unit]\nOnFailure=a\n[Service]\nSuccessExitStatus=130\nExecStop=/x\n", 2, ("OnFailure=a",)),
        ("[Unit]\nOnSuccess=a\nSuccessAction=poweroff\n", 15, ()),
        (
            "[Unit]\nOnSuccess=a\nSuccessAction=poweroff\n[Service]\nSuccessExitStatus=143",
            *(15, ("OnSuccess=a", "SuccessAction=poweroff")),
        ),
        ("[Unit]\nOnFailure=a\nOnFailure=\n[X-Site]\nFailureAction=reboot\n", 15, ()),
    ],
)
def test_what_systemd_does_after_each_stop_depends_on_the_exit_code_of_a_jvm(
    lines: str, signal: int | None, expected: tuple[str, ...]
) -> None:
    assert find_stop_actions(parse_settings(lines), signal) == expected
