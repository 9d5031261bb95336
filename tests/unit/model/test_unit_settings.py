"""Which settings of a unit no check reads."""

from __future__ import annotations

import pytest

from kafka_rollout.model.unit_settings import find_unknown, parse_settings

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
        "[Unit]\nOnFailure=heal.service",
        "[Unit]\nStopWhenUnneeded=yes",
        "[Unit]\nConflicts=zookeeper.service",
        "[Unit]\nStartLimitBurst=1",
        "[Unit]\nStartLimitIntervalSec=1d",
        "[Unit]\nFailureAction=reboot",
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
        ("# ExecCondition=/a \\\nOnFailure=x\n", ("OnFailure=x",)),  # a comment has no second line
        ("; a \\\nOnFailure=x\n", ("OnFailure=x",)),
        ("Description=a \\\\\nOnFailure=x\n", ("OnFailure=x",)),  # nor has an escaped backslash
        ("Description=a \\\\\\\nOnFailure=x\n", ()),
        ("OnFailure=\\\n# a \\\n  x \\\n;b\n  y\nDescription=z", ("OnFailure=x    y",)),
        ("Description=a \\\n\nOnFailure=x\n", ("OnFailure=x",)),  # an empty line ends it
        ("OnFailure=x \\", ("OnFailure=x",)),
    ],
)
def test_lines_are_joined_as_systemd_joins_them(text: str, expected: tuple[str, ...]) -> None:
    assert find_unknown(parse_settings(f"[Unit]\n{text}")) == expected


def test_a_line_that_a_later_one_empties_does_not_count() -> None:
    assert find_unknown(parse_settings("[Unit]\nOnFailure=x.service\nOnFailure=\n")) == ()
    text = "[Unit]\nConditionHost=x\nAssertHost=x\nConditionUser=\n"
    assert find_unknown(parse_settings(text)) == ("AssertHost=x",)
