"""The data source `kafka_coordinator_log` of Spark. Its page is README.md of this distribution.

PySpark imports each installed package whose name begins with `pyspark_`, and registers its `DefaultSource`. So this
module loads nothing that another data source does not need.
"""

from __future__ import annotations

from pyspark_kafka_coordinator_log.source import DefaultSource
from pyspark_kafka_coordinator_log.verdicts import log_verdicts, verdicts

__all__ = ["DefaultSource", "log_verdicts", "verdicts"]
