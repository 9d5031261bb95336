"""python -m tools.testbed up|down|status|image

Real hosts on this machine, each with systemd, sshd and one Kafka node, in a network of their own.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kafka_rollout.base.errors import RolloutError
from kafka_rollout.releases.facts import Release
from tools.testbed import network
from tools.testbed.bed import Bed, up
from tools.testbed.image import build_image
from tools.testbed.machine import TestbedError, install_programs, obstacle

FOLDER = Path(__file__).resolve().parents[2] / ".testbed"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.testbed", description=__doc__.split("\n\n")[1])
    commands = parser.add_subparsers(dest="command", required=True)
    make = commands.add_parser("up", help="boot the hosts and start a cluster")
    make.add_argument("--release", default="3.9.1")
    make.add_argument("--installed", nargs="*", default=["4.3.1"], help="releases that are unpacked next to it")
    make.add_argument("--hosts", type=int, default=6)
    for name, text in (("down", "remove the hosts"), ("status", "list the hosts")):
        commands.add_parser(name, help=text)
    commands.add_parser("image", help="build the base image into the cache folder")
    for command in commands.choices.values():
        command.add_argument("--folder", type=Path, default=FOLDER)
    given = parser.parse_args(arguments)
    try:
        match given.command:
            case "image":
                _build()
            case "up":
                _build()
                others = [Release.parse(text) for text in given.installed]
                _show(up(given.folder, Release.parse(given.release), size=given.hosts, others=others))
            case "down":
                bed = Bed.read(given.folder)
                bed.down()
                print(f"removed {bed.size} hosts")
            case _:
                _show(Bed.read(given.folder))
    except (TestbedError, RolloutError) as error:
        print(error, file=sys.stderr)
        return 1
    return 0


def _build() -> None:
    install_programs()
    if why := obstacle():
        raise TestbedError(why)
    build_image()


def _show(bed: Bed) -> None:
    for host, node in zip(bed.hosts, bed.spec.nodes, strict=True):
        leader = host.leader()
        unit = (
            host.run("systemctl", "show", "--property=ActiveState", "--value", "kafka.service").strip()
            if leader
            else ""
        )
        state = f"process {leader}, kafka.service {unit}" if leader else "does not run"
        print(f"{host.name}  {host.address}  node {node.node_id} ({', '.join(sorted(node.roles))})  {state}")
    print(f"inventory   {bed.inventory_path}")
    variables = f"KAFKA_ROLLOUT_CLUSTERS={bed.inventory_path.parent} KAFKA_ROLLOUT_SSH_CONFIG={bed.ssh_config}"
    print(f"enter       ip netns exec {network.bridge_namespace(bed.bed)} env {variables} bash")


if __name__ == "__main__":
    sys.exit(main())
