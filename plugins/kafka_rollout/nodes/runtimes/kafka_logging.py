"""The logging configuration of a node.

Each release line has its own library, and logs nothing without a configuration.
"""

from __future__ import annotations

from pathlib import Path

from kafka_rollout.releases.facts import Release


def logging_configuration(release: Release, home: Path) -> tuple[Path, str]:
    """The file and its text. Releases from 4.0 on log through log4j2 (KIP-653), those before through reload4j."""
    log = home / "logs" / "server.log"
    if release.major >= 4:
        return home / "log4j2.yaml", _LOG4J2.format(log=log)
    return home / "log4j.properties", _LOG4J.format(log=log)


_LOG4J = """\
log4j.rootLogger=INFO, file
log4j.appender.file=org.apache.log4j.RollingFileAppender
log4j.appender.file.File={log}
log4j.appender.file.MaxFileSize=20MB
log4j.appender.file.MaxBackupIndex=3
log4j.appender.file.layout=org.apache.log4j.PatternLayout
log4j.appender.file.layout.ConversionPattern=[%d] %p %m (%c)%n
log4j.logger.org.apache.zookeeper=WARN
"""

_LOG4J2 = """\
Configuration:
  status: warn
  Appenders:
    RollingFile:
      name: file
      fileName: "{log}"
      filePattern: "{log}.%i"
      PatternLayout:
        pattern: "[%d] %p %m (%c)%n"
      SizeBasedTriggeringPolicy:
        size: 20MB
      DefaultRolloverStrategy:
        max: 3
  Loggers:
    Root:
      level: INFO
      AppenderRef:
        ref: file
"""
