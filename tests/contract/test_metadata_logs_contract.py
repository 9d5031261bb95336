"""The fake metadata logs of fast tests have the calls of the real ones, and both those of the port."""

from __future__ import annotations

import inspect

import pytest

from kafka_rollout.adapters.metadata_logs import DirectoryMetadataLogs
from kafka_rollout.ports import MetadataLogs
from tests.fake_metadata_logs import FakeMetadataLogs

CALLS = sorted(name for name in vars(MetadataLogs) if not name.startswith("_"))


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("kind", [DirectoryMetadataLogs, FakeMetadataLogs])
def test_each_call_of_the_port_is_there_with_the_same_parameters_and_result(kind: type, call: str) -> None:
    assert str(inspect.signature(getattr(kind, call))) == str(inspect.signature(getattr(MetadataLogs, call)))
