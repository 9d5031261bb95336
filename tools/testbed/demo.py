"""`make demo-hosts`: the demo of an upgrade, on the hosts of a test bed instead of local processes."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import threading
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.clusters.inventory import dump_cluster
from kafka_rollout.model.topology import ClusterSpec
from kafka_rollout.releases.facts import Release
from tools.demo.approvals import Approve
from tools.demo.cluster import NAME, SNAPSHOT_INTERVAL, create_topics
from tools.demo.folder import DemoFolder
from tools.demo.run import run_demo
from tools.testbed.bed import UNSEEN, missing, up
from tools.testbed.machine import TestbedError

_LOOPBACK = "127.0.0.1"
_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Doorway:
    """Forwards a port of the machine's loopback to the same port of the test bed, so that a browser reaches Airflow.

    A socket stays in the network in which it was created: make this object before the test bed is entered.
    """

    listener: socket.socket = field(default_factory=socket.socket)

    def open(self, port: int) -> None:
        """Forward a port; called inside the test bed. A port that is in use on the machine is not forwarded."""
        try:
            self.listener.bind((_LOOPBACK, port))
        except OSError as error:
            print(f"Port {port} is not forwarded to the test bed: {error.strerror}.", file=sys.stderr)
            return
        self.listener.listen()
        threading.Thread(target=self._accept, args=(port,), daemon=True).start()

    def _accept(self, port: int) -> None:
        with suppress(OSError):  # the listener was closed
            while True:
                outside, _ = self.listener.accept()
                try:
                    inside = socket.create_connection((_LOOPBACK, port))
                except OSError:
                    outside.close()
                    continue
                for pair in ((outside, inside), (inside, outside)):
                    threading.Thread(target=_copy, args=pair, daemon=True).start()


def _copy(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK):
            target.sendall(data)
    with suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.testbed.demo", description=__doc__)
    parser.add_argument("--from", dest="source", default="3.9.1")
    parser.add_argument("--to", dest="target", default="4.3.1")
    parser.add_argument("--approve", nargs="?", choices=("ask", "auto"), const="ask")
    given = parser.parse_args(arguments)
    try:
        source, target = Release.parse(given.source), Release.parse(given.target)
        if why := missing():
            raise TestbedError(why)
        if target < source:
            raise TestbedError("The test bed shows upgrades: choose a later release as target.")
        return _run(source, target, given.approve or "ui")
    except (TestbedError, RolloutError) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _run(source: Release, target: Release, approve: Approve) -> int:
    doorway = Doorway()
    with ExitStack() as stack:
        stack.callback(doorway.listener.close)

        def create(folder: DemoFolder, release: Release, *, metadata_version: str | None = None) -> ClusterSpec:
            bed = up(folder.path / "bed", release, others=[target], properties=SNAPSHOT_INTERVAL)
            stack.callback(bed.down)
            stack.enter_context(bed.inside())
            os.environ["KAFKA_ROLLOUT_SSH_CONFIG"] = str(bed.ssh_config)
            spec = replace(bed.spec, name=NAME)
            inventories = folder.settings.clusters
            inventories.mkdir()
            (inventories / f"{NAME}.yaml").write_text(dump_cluster(spec))
            create_topics(spec)
            return spec

        return run_demo(source, target, approve=approve, create=create, opened=doorway.open, accepts=UNSEEN)


if __name__ == "__main__":
    sys.exit(main())
