"""A cluster on the hosts of a test bed."""

from __future__ import annotations

import os
from contextlib import ExitStack, suppress
from pathlib import Path

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release
from tools.faults.contents import PROPERTIES
from tools.faults.kinds import Kind
from tools.faults.plan import Fault, Round, hosts_of
from tools.faults.world import End, NotPossibleError, World, keep_segments, shorten_gates
from tools.testbed.bed import DATA, Bed, up
from tools.testbed.hosts import Host
from tools.testbed.machine import TestbedError
from tools.testbed.network import BRIDGE_ADDRESS

_UNIT = "kafka.service"
_CONTROLLER_PORT = 9093


class HostsWorld(World):
    """This thread, and every thread that it starts, is in the network of the test bed until `remove`."""

    patience_s = 25.0  # systemd restarts a node by itself

    def __init__(self, folder: Path, of: Round) -> None:
        self.folder = folder
        self.bed: Bed = up(
            folder, Release.parse(of.older), size=hosts_of(of.layout), others=[Release.parse(of.newer)],
            properties=PROPERTIES,
        )  # fmt: skip
        self._inside = ExitStack()
        try:
            self._inside.enter_context(self.bed.inside())
            for host in self.bed.hosts:  # as operators do it: a host that boots starts its node by itself
                host.run("systemctl", "enable", _UNIT)
        except BaseException:
            self.remove()
            raise
        self.spec = self.bed.spec
        shorten_gates(self.bed.inventory_path)
        self.inventory = self.bed.inventory_path.parent
        os.environ["KAFKA_ROLLOUT_SSH_CONFIG"] = str(self.bed.ssh_config)

    def inject(self, fault: Fault, node: NodeSpec) -> End:
        host = self.bed.host_of(node)
        try:
            return self._inject(fault, node, host)
        except TestbedError as error:
            raise NotPossibleError(str(error)) from None

    def _inject(self, fault: Fault, node: NodeSpec, host: Host) -> End:
        match fault.kind:
            case Kind.KILL_NODE:
                _signal(host, "SIGKILL")
                return lambda: "killed; systemd restarts it"
            case Kind.PAUSE_NODE:
                _signal(host, "SIGSTOP")
                return lambda: _continue(host)
            case Kind.CUT_SSH:
                return self._drop([(host, (f"ip saddr {BRIDGE_ADDRESS} tcp dport 22",))])
            case Kind.CUT_BROKER:
                return self._drop(self._cut_broker(node, host))
            case Kind.PARTITION_CONTROLLER:
                others = self._addresses_of_controllers(node)
                port = _CONTROLLER_PORT
                matches = tuple(f"ip saddr {each} tcp {way} {port}" for each in others for way in ("sport", "dport"))
                return self._drop([(host, matches)])
            case Kind.REBOOT_HOST:
                host.reboot()
                return lambda: "booted"
            case Kind.FILL_DISK:
                host.run("sh", "-c", "cat /dev/zero > /var/lib/kafka/filler || true")
                return lambda: _free(host)
            case _:
                raise NotPossibleError(f"Hosts have no {fault.kind}.")

    def has_process(self, node: NodeSpec) -> bool:
        try:
            shown = self.bed.host_of(node).run("systemctl", "show", "--property=MainPID", "--value", _UNIT)
        except TestbedError:
            return False
        return shown.strip() not in ("", "0")

    def start(self, node: NodeSpec) -> None:
        host = self.bed.host_of(node)
        if host.leader() is None:
            host.boot()
            host.wait_until_booted()
        with suppress(TestbedError):  # systemd has not loaded the unit since the boot
            host.run("systemctl", "reset-failed", _UNIT)
        host.run("systemctl", "start", "--no-block", _UNIT)

    def restart(self, node: NodeSpec) -> None:
        self.bed.host_of(node).run("systemctl", "restart", _UNIT)

    def keep_logs(self, folder: Path) -> None:
        for node in self.spec.nodes:
            with suppress(TestbedError, OSError):
                folder.mkdir(parents=True, exist_ok=True)
                text = self.bed.host_of(node).run("journalctl", "--unit", _UNIT, "--no-pager", "--output=cat")
                (folder / f"{node.name}.log").write_text(text)
            keep_segments(self.bed.host_of(node).root / DATA.lstrip("/"), folder / node.name)

    def remove(self) -> None:
        self._inside.close()
        self.bed.down()

    def _cut_broker(self, node: NodeSpec, host: Host) -> list[tuple[Host, tuple[str, ...]]]:
        """What the controllers send to the broker, and what the broker sends to the controllers."""
        others = self._addresses_of_controllers(node)
        cuts = [(host, tuple(f"ip saddr {each} tcp sport {_CONTROLLER_PORT}" for each in others))]
        for each in self.bed.hosts:
            if each.address in others:
                cuts.append((each, (f"ip saddr {host.address} tcp dport {_CONTROLLER_PORT}",)))
        return cuts

    def _addresses_of_controllers(self, node: NodeSpec) -> list[str]:
        return [self.bed.host_of(each).address for each in self.spec.controllers if each.node_id != node.node_id]

    def _drop(self, cuts: list[tuple[Host, tuple[str, ...]]]) -> End:
        stack = ExitStack()
        try:
            for host, matches in cuts:
                stack.enter_context(host.dropping(*matches))
        except TestbedError:
            stack.close()
            raise

        def end() -> str:
            stack.close()
            return "connected again"

        return end


def _signal(host: Host, name: str) -> None:
    host.run("systemctl", "kill", f"--signal={name}", "--kill-who=main", _UNIT)


def _continue(host: Host) -> str:
    try:
        _signal(host, "SIGCONT")
    except TestbedError:
        return "the process had ended"
    return "continued"


def _free(host: Host) -> str:
    host.run("rm", "-f", "/var/lib/kafka/filler")
    return f"space for {DATA} is free again"
