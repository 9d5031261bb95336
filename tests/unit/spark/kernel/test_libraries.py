"""The kernel's CRC32C, by the C function of the package crc32c and by its own table."""

from __future__ import annotations

import random

import crc32c
import numpy as np
import pytest

from kafka_rollout_spark.kernel import memory
from kafka_rollout_spark.kernel.libraries import close_libraries, open_libraries
from kafka_rollout_spark.kernel.tables import CRC32C


@pytest.mark.parametrize("size", [0, 1, 9, 1000, 70_001])
def test_the_crc_is_that_of_the_package_with_its_function_and_without(size: int) -> None:
    addresses = open_libraries()
    close_libraries(addresses)
    data = random.Random(size).randbytes(size)
    held = np.frombuffer(data + b"\0", dtype=np.uint8)
    assert addresses[CRC32C]
    found = [memory.crc32c(function, held.ctypes.data, size) for function in (addresses[CRC32C], 0)]
    assert found == [crc32c.crc32c(data)] * 2
