"""The driver's port does not deserialize objects of a client that has no secret."""

from __future__ import annotations

import socket
import struct

import pytest
from pyspark import SparkContext

pytestmark = pytest.mark.spark

RPC_REQUEST = 3  # org.apache.spark.network.protocol.Message.Type
UNKNOWN_CLASS = "not.there.Class"


def utf(text: str) -> bytes:
    """Java's DataOutput.writeUTF of ASCII text."""
    return struct.pack(">H", len(text)) + text.encode()


def rpc_request(host: str, port: int) -> bytes:
    """A frame for the endpoint HeartbeatReceiver whose body is a serialized Java object of a class that does not exist.

    Source: org.apache.spark.network.protocol.RpcRequest and org.apache.spark.rpc.netty.RequestMessage.
    """
    no_sender, receiver = b"\0", b"\1" + utf(host) + struct.pack(">i", port) + utf("HeartbeatReceiver")
    java_object = b"\xac\xed\x00\x05sr" + utf(UNKNOWN_CLASS) + struct.pack(">qBH", 1, 2, 0) + b"xp"
    body = no_sender + receiver + java_object
    message = struct.pack(">Bqi", RPC_REQUEST, 1, len(body)) + body
    return struct.pack(">q", 8 + len(message)) + message


def test_a_local_user_without_the_secret_cannot_choose_a_class_that_the_driver_loads(spark: SparkContext) -> None:
    host, port = spark.getConf().get("spark.driver.host"), int(spark.getConf().get("spark.driver.port"))
    answer = b""
    with socket.create_connection((host, port), timeout=60) as client:
        client.sendall(rpc_request(host, port))
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(65536):
            answer += part
    assert UNKNOWN_CLASS.encode() not in answer
    assert b"SaslMessage" in answer
