"""Texts and method calls in a compiled class, for behaviour that cannot be tested by calls (JVMS, chapter 4)."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterator

_UTF8, _LONG, _DOUBLE, _METHOD, _INTERFACE_METHOD, _NAME_AND_TYPE = 1, 5, 6, 10, 11, 12
_SIZES = {3: 4, 4: 4, 5: 8, 6: 8, 7: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3, 16: 2, 17: 4, 18: 4, 19: 2, 20: 2}
_INVOKES = (0xB6, 0xB7, 0xB8, 0xB9)  # virtual, special, static, interface


def calls(class_file: bytes, wanted: frozenset[str]) -> Iterator[tuple[str, Counter[str]]]:
    """Return for each method with code its name and its number of calls of methods with the `wanted` names.

    Operands of other instructions can have the same bytes as a call and are counted too. So use rarely called names.
    """
    reader = _Reader(class_file)
    reader.skip(8)
    texts, references, names = _constants(reader)
    called = {index: texts[names[at]] for index, at in references.items() if texts[names[at]] in wanted}
    reader.skip(6)
    reader.skip(2 * reader.u2())
    for _ in range(reader.u2()):  # fields
        reader.skip(6)
        list(reader.attributes())
    for _ in range(reader.u2()):
        reader.skip(2)
        method = texts[reader.u2()]
        reader.skip(2)
        for name, body in reader.attributes():
            if texts[name] == "Code":
                yield method, _count_calls(body, called)


def texts(class_file: bytes) -> frozenset[str]:
    """Return all texts in the class: string constants and names."""
    reader = _Reader(class_file)
    reader.skip(8)
    return frozenset(_constants(reader)[0].values())


def _count_calls(body: bytes, called: dict[int, str]) -> Counter[str]:
    code = body[8 : 8 + int.from_bytes(body[4:8], "big")]  # after it: exceptions, line numbers
    places = (at for at in range(len(code) - 2) if code[at] in _INVOKES)
    indexes = (int.from_bytes(code[at + 1 : at + 3], "big") for at in places)
    return Counter(called[index] for index in indexes if index in called)


def _constants(reader: _Reader) -> tuple[dict[int, str], dict[int, int], dict[int, int]]:
    """Return the texts; the index of name and type of method references; the index of the name of names and types."""
    texts: dict[int, str] = {}
    references: dict[int, int] = {}
    names: dict[int, int] = {}
    index, count = 1, reader.u2()
    while index < count:
        kind = reader.take(1)[0]
        if kind == _UTF8:
            texts[index] = reader.take(reader.u2()).decode(errors="replace")
        else:
            body = reader.take(_SIZES[kind])
            if kind in (_METHOD, _INTERFACE_METHOD):
                references[index] = int.from_bytes(body[2:], "big")
            elif kind == _NAME_AND_TYPE:
                names[index] = int.from_bytes(body[:2], "big")
        index += 2 if kind in (_LONG, _DOUBLE) else 1
    return texts, references, names


class _Reader:
    def __init__(self, data: bytes) -> None:
        self._data, self._at = data, 0

    def take(self, size: int) -> bytes:
        self._at += size
        return self._data[self._at - size : self._at]

    def skip(self, size: int) -> None:
        self._at += size

    def u2(self) -> int:
        return int.from_bytes(self.take(2), "big")

    def attributes(self) -> Iterator[tuple[int, bytes]]:
        """Return the index of the name, and the content."""
        for _ in range(self.u2()):
            name, size = struct.unpack(">HI", self.take(6))
            yield name, self.take(size)
