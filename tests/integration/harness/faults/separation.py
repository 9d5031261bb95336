"""A broker that the network separates: its process runs, and no packet leaves or reaches it.

The broker runs as a user of its own, and a routing rule for this user and one for the broker's port discard the
packets. Needs root and iproute2; the rules apply to the network namespace of the tests.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.jvm.java import java_binary

_USER = 64_242
_LOCAL_LAST = 10  # the rule for local addresses is first otherwise
_RULES = (1, 2)

needs_routing_rules = pytest.mark.skipif(
    os.geteuid() != 0 or not (shutil.which("ip") and shutil.which("setpriv")), reason="needs root, ip and setpriv"
)


def run_as_another_user(node: NodeSpec, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its next start on. The user can open every file, as root can; access(2) shows this with the secure bit."""
    java, rights = java_binary(), "+dac_override,+dac_read_search,+fowner"
    user = f"--reuid={_USER} --securebits=+no_setuid_fixup --inh-caps={rights} --ambient-caps={rights}"
    wrapper = folder / "java"
    wrapper.write_text(
        f"""#!/bin/sh
case "$*" in
*{node.directory}/server.properties) exec setpriv {user} {java} "$@" ;;
esac
exec {java} "$@"
"""
    )
    wrapper.chmod(0o755)
    monkeypatch.setattr("kafka_rollout.nodes.runtimes.local_process.java_binary", lambda: wrapper)


@contextmanager
def separated(node: NodeSpec) -> Iterator[None]:
    assert node.broker_address is not None
    port = node.broker_address.rpartition(":")[2]
    _rule("add", str(_LOCAL_LAST), "lookup", "local")
    _rule("del", "0")
    try:
        _rule("add", str(_RULES[0]), "uidrange", f"{_USER}-{_USER}", "blackhole")
        _rule("add", str(_RULES[1]), "ipproto", "tcp", "dport", port, "blackhole")
        yield
    finally:
        _rule("add", "0", "lookup", "local")
        for number in (*_RULES, _LOCAL_LAST):
            _rule("del", str(number))


def _rule(change: str, number: str, *what: str) -> None:
    subprocess.run(["ip", "rule", change, "pref", number, *what], check=True)
