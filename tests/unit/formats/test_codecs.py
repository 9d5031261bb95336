"""No batch is decompressed beyond a limit, whatever it says of itself."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import Any

import lz4.frame
import pytest
from backports import zstd

from kafka_rollout.formats.codecs import DECOMPRESS, MOST_PAYLOAD_BYTES
from kafka_rollout.formats.log_types import Codec

GIGABYTE = 1 << 30
BLOCK = bytes(1 << 20)


class Lz4:
    def __init__(self) -> None:
        self._inner = lz4.frame.LZ4FrameCompressor()
        self._begun = self._inner.begin()

    def compress(self, data: bytes) -> bytes:
        begun, self._begun = self._begun, b""
        return begun + self._inner.compress(data)

    def flush(self) -> bytes:
        return self._inner.flush()


COMPRESSORS: dict[Codec, Any] = {
    Codec.GZIP: lambda: zlib.compressobj(level=1, wbits=31),
    Codec.LZ4: Lz4,
    Codec.ZSTD: zstd.ZstdCompressor,
}


def of_zeros(codec: Codec, size: int) -> bytes:
    compressor = COMPRESSORS[codec]()

    def parts() -> Iterator[bytes]:
        for _ in range(size // len(BLOCK)):
            yield compressor.compress(BLOCK)
        yield compressor.flush()

    return b"".join(parts())


@pytest.mark.parametrize("codec", COMPRESSORS)
def test_a_batch_of_the_limit_is_decompressed_and_a_gigabyte_is_refused(codec: Codec) -> None:
    decompress = DECOMPRESS[codec]
    assert len(decompress(of_zeros(codec, MOST_PAYLOAD_BYTES))) == MOST_PAYLOAD_BYTES
    with pytest.raises(ValueError, match="decompresses to more than 128 MiB"):
        decompress(of_zeros(codec, GIGABYTE))


def test_a_snappy_block_that_says_it_holds_a_gigabyte_is_refused() -> None:
    with pytest.raises(ValueError, match="decompresses to more than 128 MiB"):
        DECOMPRESS[Codec.SNAPPY](b"\x80\x80\x80\x80\x04" + bytes(100))
