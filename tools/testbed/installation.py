"""Kafka as operators install it: an archive's layout below /opt, a symlink, a systemd unit and files in /etc/kafka."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tools.testbed.image import KAFKA
from tools.testbed.start_scripts import RUN_CLASS, server_start

EXPORTER_PORT = 9404
_EXPORTER = "opt/jmx_exporter/jmx_prometheus_javaagent.jar"

_LOG4J = """\
log4j.rootLogger=INFO, stdout
log4j.appender.stdout=org.apache.log4j.ConsoleAppender
log4j.appender.stdout.layout=org.apache.log4j.PatternLayout
log4j.appender.stdout.layout.ConversionPattern=[%d] %p %m (%c)%n
"""
_LOG4J2 = """\
Configuration:
  Appenders:
    Console:
      name: STDOUT
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        ref: STDOUT
"""
UNIT = f"""\
[Unit]
Description=Apache Kafka
After=network.target

[Service]
User={KAFKA}
Group={KAFKA}
EnvironmentFile=/etc/kafka/kafka.env
ExecStart=/opt/kafka/bin/kafka-server-start.sh /etc/kafka/server.properties
SuccessExitStatus=143
Restart=on-failure
RestartSec=2
TimeoutStopSec=300
LimitNOFILE=100000

[Install]
WantedBy=multi-user.target
"""
# An operator's own rules: lower-case names by domain, type and name, as in the exporter's example for Kafka.
_EXPORTER_RULES = """\
lowercaseOutputName: true
rules:
- pattern: kafka.(\\w+)<type=(.+), name=(.+)><>Value
  name: kafka_$1_$2_$3
  type: GAUGE
- pattern: kafka.(\\w+)<type=(.+), name=(.+), (.+)=(.+)><>Count
  name: kafka_$1_$2_$3_total
  type: COUNTER
  labels:
    "$4": "$5"
"""


def release_layer(folder: Path, release: Release, cache: ReleaseCache) -> Path:
    """Make a file system layer with an installed release; jars are hard links to the cache where possible."""
    layer = folder / f"kafka-{release}"
    write_release(layer / "opt" / f"kafka_2.13-{release}", release, cache)
    return layer


def write_release(home: Path, release: Release, cache: ReleaseCache) -> None:
    """Write the files of an archive; `home`/libs can be a link."""
    for name in ("bin", "config", "libs"):
        (home / name).mkdir(parents=True, exist_ok=True)
    for jar in cache.libs(release).iterdir():
        _link(jar, home / "libs" / jar.name)
    for script, text in {"kafka-server-start.sh": server_start(release), "kafka-run-class.sh": RUN_CLASS}.items():
        (home / "bin" / script).write_text(text)
        (home / "bin" / script).chmod(0o755)
    name, text = ("log4j2.yaml", _LOG4J2) if release.major >= 4 else ("log4j.properties", _LOG4J)
    (home / "config" / name).write_text(text)


def agent_layer(folder: Path, cache: ReleaseCache) -> Path:
    """Make a file system layer with the JMX exporter."""
    layer = folder / "agents"
    jar = layer / _EXPORTER
    jar.parent.mkdir(parents=True, exist_ok=True)
    _link(cache.agents().jmx_exporter, jar)
    return layer


def write_installation(
    upper: Path, release: Release, properties: Mapping[str, str], *, exporter: bool, packaged: bool
) -> None:
    """Write the files of one host that differ from the layers, before its first boot. Owners are set by `own_files`."""
    etc = upper / "etc" / "kafka"
    etc.mkdir(parents=True)
    lines = "".join(f"{key}={value}\n" for key, value in properties.items())
    (etc / "server.properties").write_text(f"# Written by the operator.\n{lines}")
    options = f"-javaagent:/{_EXPORTER}={EXPORTER_PORT}:/etc/kafka/jmx_exporter.yml" if exporter else ""
    environment = {
        "KAFKA_HEAP_OPTS": "-Xms64m -Xmx320m",
        "KAFKA_JVM_PERFORMANCE_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xshare:auto",
        "KAFKA_OPTS": options,
        "LOG_DIR": "/var/log/kafka",
    }
    (etc / "kafka.env").write_text("".join(f'{key}="{value}"\n' for key, value in environment.items()))
    if exporter:
        (etc / "jmx_exporter.yml").write_text(_EXPORTER_RULES)
    if packaged:
        return
    (upper / "opt").mkdir(exist_ok=True)
    (upper / "opt" / "kafka").symlink_to(f"/opt/kafka_2.13-{release}")
    units = upper / "etc" / "systemd" / "system"
    (units / "multi-user.target.wants").mkdir(parents=True)
    (units / "kafka.service").write_text(UNIT)


OWN_FILES = f"""set -e
chown -R root:{KAFKA} /etc/kafka
chmod 0750 /etc/kafka
chmod 0640 /etc/kafka/*
mkdir -p /var/lib/kafka/data /var/log/kafka
chown -R {KAFKA}:{KAFKA} /var/lib/kafka /var/log/kafka
"""


def format_command(jars: str, cluster_id: str, options: Sequence[str] = ()) -> list[str]:
    """The command that formats the data of a host, as the user of the broker. `jars`: folder of the release."""
    java = ["java", "-Xmx128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", f"{jars}/*"]
    tool = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", "/etc/kafka/server.properties", *options]
    return ["runuser", "-u", KAFKA, "--", *java, *tool]


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # another file system
        shutil.copyfile(source, target)
