"""Since which release a partition under min.insync.replicas gives consumers no new records."""

from __future__ import annotations

import zipfile

import pytest

from kafka_rollout.releases.facts import Release
from kafka_rollout.releases.jars.cache import ReleaseCache
from tests.releases import NEWEST

pytestmark = pytest.mark.integration

# Partition.maybeIncrementLeaderHW logs this and returns: the high watermark stays, whatever the acks of a record.
REFUSAL = b"Not increasing HWM because partition is under min ISR"


@pytest.mark.parametrize(
    ("release", "refuses"),
    [
        ("3.4.1", False),
        pytest.param("3.6.2", False, marks=pytest.mark.full),
        pytest.param("3.7.0", True, marks=pytest.mark.full),
        ("3.9.1", True),
        ("4.3.1", True),
        pytest.param(NEWEST, True, marks=pytest.mark.full),
    ],
)
def test_the_high_watermark_waits_for_min_isr_from_3_7_0_on_and_not_only_from_4_0(
    release_cache: ReleaseCache, release: str, refuses: bool
) -> None:
    (core,) = release_cache.libs(Release.parse(release)).glob("kafka_2.*.jar")
    with zipfile.ZipFile(core) as jar:
        classes = [jar.read(name) for name in jar.namelist() if name.startswith("kafka/cluster/Partition")]
    assert classes
    assert any(REFUSAL in content for content in classes) is refuses
