"""Names that the host of a node cannot resolve, with a real shell."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from typing import cast

import pytest

from kafka_rollout.base.errors import RefusedError
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.nodes.runtimes.hosts.commands import HostCommands
from kafka_rollout.nodes.runtimes.hosts.names import find_unresolved, first_address, read_network, read_own_name
from kafka_rollout.nodes.runtimes.hosts.shells import Done
from tests.unit.nodes.runtimes.test_node_starts import ShellOfThisMachine
from tests.unit.nodes.runtimes.test_service import NODE


@dataclass
class _Host(ShellOfThisMachine):
    path: str = "$PATH"

    def run(self, node: NodeSpec | str, command: object, **options: object) -> Done:
        return super().run(node, f"PATH={self.path}; {command}", **options)


def test_a_host_reports_the_names_that_it_cannot_resolve() -> None:
    commands = cast(HostCommands, _Host())
    assert find_unresolved(commands, NODE, ["localhost", "kafka.invalid", "127.0.0.1"]) == ("kafka.invalid",)
    assert find_unresolved(commands, NODE, ["$(touch x)"]) == ("$(touch x)",)


def test_without_getent_it_is_unknown() -> None:
    with pytest.raises(RefusedError, match="does not report whether it can resolve localhost"):
        find_unresolved(cast(HostCommands, _Host(path="/nowhere")), NODE, ["localhost"])


def test_a_host_shows_its_addresses_and_where_something_listens() -> None:
    commands = cast(HostCommands, _Host())
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket(socket.AF_INET6) as other:
        port = server.getsockname()[1]
        other.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        other.bind(("::ffff:127.0.0.1", 0))
        other.listen()
        found = read_network(commands, NODE, ["localhost", "kafka.invalid", "192.0.2.7"], None)
        gone = read_network(commands, NODE, ["localhost"], 99999999)
        assert {("127.0.0.1", port), ("127.0.0.1", other.getsockname()[1])} <= found.listens
    assert found.addresses["kafka.invalid"] == ()
    assert {*found.addresses["localhost"]} & {"127.0.0.1", "::1"}
    assert (found.is_own("127.0.1.1"), found.is_own("192.0.2.7")) == (True, False)
    assert found.elsewhere("127.0.0.1", [port]) == ()
    assert gone.own == found.own


def test_a_host_reports_the_name_that_kafka_takes_for_itself() -> None:
    name, canonical = read_own_name(cast(HostCommands, _Host()), NODE, ())
    assert name == os.uname().nodename
    try:
        address = socket.gethostbyname(name)
    except OSError:
        assert canonical == ""
    else:
        assert address in {one[4][0] for one in socket.getaddrinfo(canonical, None)}
    with pytest.raises(RefusedError, match="does not report its own name"):
        read_own_name(cast(HostCommands, _Host(path="/nowhere")), NODE, ())


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ([], "10.0.0.1"),
        (["-Djava.net.preferIPv6Addresses=true"], "fd00::1"),
        (["-Djava.net.preferIPv6Addresses=system"], "fd00::1"),
        (["-Djava.net.preferIPv6Addresses=false", "-Djava.net.preferIPv4Stack=true"], "10.0.0.1"),
    ],
)
def test_a_jvm_binds_to_the_first_address_of_its_preference(options: list[str], first: str) -> None:
    assert first_address(["fd00::1", "10.0.0.1", "10.0.0.2"], options) == first
    assert first_address(["fd00::1"], options) == "fd00::1"
    assert first_address([], options) == ""
