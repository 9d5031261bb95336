"""A release's own generated message classes: what they read, what they hold, what they write."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.formats.coordinator_records import VERSION_BYTES
from kafka_rollout.formats.layouts import FieldLayout, FieldType, Layout, StructLayout
from kafka_rollout.formats.messages import UNKNOWN_TAGS
from kafka_rollout.releases.jvm.jvm import Jvm

_PACKAGES = (
    "kafka.internals.generated",  # up to 3.x
    "org.apache.kafka.coordinator.group.generated",
    "org.apache.kafka.coordinator.transaction.generated",
    "org.apache.kafka.coordinator.share.generated",
)
_PROTOCOL = "org.apache.kafka.common.protocol"


@dataclass(slots=True)
class KafkaMessages:
    jvm: Jvm
    _classes: dict[str, Any] = field(default_factory=dict)

    def read(self, layout: Layout, data: bytes, at: int = 0) -> tuple[Any, int] | None:
        """(the message, where it ends), None if Kafka's class throws."""
        buffer = self.jvm.packages.java.nio.ByteBuffer.wrap(data)
        buffer.position(at)
        message = self._class(layout.name)()
        try:
            message.read(self.jvm.static(f"{_PROTOCOL}.ByteBufferAccessor")(buffer), layout.version)
        except Py4JJavaError:
            return None
        return message, buffer.position()

    def write(self, message: Any, version: int) -> bytes | None:
        """None if Kafka's class throws."""
        try:
            buffer = self.jvm.static(f"{_PROTOCOL}.MessageUtil").toVersionPrefixedByteBuffer(version, message)
        except Py4JJavaError:
            return None
        return bytes(buffer.array())[VERSION_BYTES:]

    def fields(self, message: Any, layout: StructLayout) -> dict[str, Any]:
        """What the message's getters say of the fields of its version, in the form of `messages.decode`."""
        held = {f.name: self._field(f, getattr(message, f.name)()) for f in (*layout.fields, *layout.tagged.values())}
        if unknown := [(one.tag(), bytes(one.data())) for one in message.unknownTaggedFields()]:
            held[UNKNOWN_TAGS] = unknown
        return held

    def _field(self, layout: FieldLayout, value: Any) -> Any:
        if value is None:
            return None
        return [self._one(layout, one) for one in value] if layout.array else self._one(layout, value)

    def _one(self, layout: FieldLayout, value: Any) -> Any:
        if layout.struct is not None:
            return self.fields(value, layout.struct)
        match layout.type:
            case FieldType.UUID:
                return value.toString()
            case FieldType.BYTES:
                return bytes(value)
            case _:
                return value

    def _class(self, name: str) -> Any:
        if name not in self._classes:
            package = next(package for package in _PACKAGES if self.jvm.find_class(f"{package}.{name}"))
            self._classes[name] = self.jvm.static(f"{package}.{name}")
        return self._classes[name]
