"""The class archives of the tests, used by the processes that call Kafka's classes."""

from __future__ import annotations

import pytest

from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jvm.jvm import OPTIONS, run_jvm
from tests.class_archives import ClassArchives

pytestmark = pytest.mark.integration


def test_a_process_that_calls_kafka_s_classes_loads_them_from_the_archive(class_archives: ClassArchives) -> None:
    release = Release(4, 3, 1)
    class_archives.record(release)
    # With -Xshare:on, Java ends if the archive does not fit the class path.
    with run_jvm(class_archives.cache.libs(release), options=(*OPTIONS, "-Xshare:on")) as jvm:
        arguments = jvm.packages.java.lang.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
        assert [one for one in arguments if one.startswith("-XX:SharedArchiveFile=")]
