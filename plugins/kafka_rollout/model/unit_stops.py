"""Which Kafka processes of a host the stop of a unit reaches: by its own commands, and by the scripts that they run.

What runs on the host counts, and not only the nodes of an inventory: kafka-server-stop.sh and commands that find
processes by name reach the nodes of other clusters too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import nodes
from kafka_rollout.model.host_state import KafkaProcess, UnitStop
from kafka_rollout.model.signals import STOP_SCRIPT, StopText
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

_OTHER_USER = re.compile(r"(?<![\w./-])(?:/\S*/)?(?:sudo|doas|su|runuser|pkexec|setpriv|run0|systemd-run|ssh)(?=\s)")
_ROOT = 0
_FIRST_WITH_FILTERS = Release(3, 7, 0)  # kafka-server-stop.sh of earlier releases ignores its options (KIP-979)


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReach:
    """A text of the stop of a unit that reaches other Kafka processes of the host."""

    unit: str
    host: str
    setting: str
    """ExecStop or ExecStopPost."""
    text: str
    """The command of the unit, or the line of the script."""
    path: str
    """Of the script; empty: the unit has the text itself."""
    reached: tuple[KafkaProcess, ...]
    """Empty: the host does not show its processes."""

    @property
    def sentence(self) -> str:
        if self.path:
            has = f"{self.setting}= of {self.unit} on host {self.host} runs {self.path}: `{self.text}`"
        else:
            has = f"{self.unit} on host {self.host} has {self.setting}={self.text}"
        if not self.reached:
            return (
                f"{has}, which stops every Kafka of this host that it finds, and the host does not show its processes "
                "to the SSH user."
            )
        own = [one.node.node_id for one in self.reached if one.node is not None]
        foreign = [_name(one) for one in self.reached if one.node is None]
        named = [*([f"{nodes(own)} of this host"] if own else []), *foreign]
        no_node = (
            f", which {'is not a node' if len(foreign) == 1 else 'are not nodes'} of this cluster" if foreign else ""
        )
        return f"{has}, which can also stop {' and '.join(named)}{no_node}."

    @property
    def remedy(self) -> str:
        if self.path:
            return (
                f"Let {self.path} send SIGTERM to the process of {self.unit} alone, by $MAINPID, which systemd gives "
                "to ExecStop=, or by its file with a process id."
                if self.setting == "ExecStop"
                else f"Remove this line from {self.path}: the process of {self.unit} has ended before ExecStopPost= "
                "runs."
            )
        signal = (
            " systemd then sends SIGTERM to this unit alone, which is Kafka's controlled shutdown."
            if self.setting == "ExecStop"
            else ""
        )
        return (
            f"Run `systemctl edit {self.unit}` on the host, and write the lines `[Service]` and `{self.setting}=` "
            f"there.{signal}"
        )


def _name(process: KafkaProcess) -> str:
    name = process.unit or (f"process {process.pid}" if process.pid else "a Kafka")
    return f"{name} ({process.configuration})" if process.configuration else name


def find_reached(
    stop: UnitStop, node: NodeSpec, others: Sequence[NodeSpec], *, unit: str, host: str
) -> Iterator[StopReach]:
    """Yield the texts of a stop that reach another Kafka than the node. `others`: the other nodes of the inventory on
    the host, which also count while they do not run."""
    targets = [*_with_nodes(stop.processes or (), others)]
    is_hidden = stop.processes is None
    for setting, commands, lines in (
        ("ExecStop", stop.commands, stop.lines),
        ("ExecStopPost", stop.after, stop.after_lines),
    ):
        scripts: dict[str, list[str]] = {}
        for path, line in lines:
            if STOP_SCRIPT not in path:  # what it does is known
                scripts.setdefault(path, []).append(line)
        texts = [("", [command]) for command in commands] + [*scripts.items()]
        changes_user = any(_OTHER_USER.search(line) for _, found in texts for line in found)
        for path, found in texts:
            text = StopText(
                lines=found if path else [_as_shell(found[0])],
                unit=unit,
                configuration=node.service.configuration_file if node.service is not None else "",
                filters=stop.filters,
                arguments=tuple(_arguments(commands, path)) if path else (),
            )
            reached: dict[str, list[KafkaProcess]] = {}
            for process in [*targets, *([KafkaProcess()] if is_hidden else [])]:
                command = text.find_signal(process, can_signal=changes_user or _can_signal(stop, process))
                if command is not None:
                    reached.setdefault(command if path else found[0], []).append(process)
            for command, processes in reached.items():
                known = tuple(one for one in processes if one.pid or one.node is not None)
                yield StopReach(unit=unit, host=host, setting=setting, text=command, path=path, reached=known)


def _with_nodes(processes: Sequence[KafkaProcess], others: Sequence[NodeSpec]) -> Iterator[KafkaProcess]:
    """Yield the processes with their nodes, and the nodes that none of them is."""
    left = list(others)
    for process in processes:
        own = next((one for one in left if _is_of(process, one)), None)
        if own is None:
            yield process
        else:
            left.remove(own)
            yield _of_node(own, process)
    yield from (_of_node(one, None) for one in left)


def _is_of(process: KafkaProcess, node: NodeSpec) -> bool:
    service = node.service
    return service is not None and (service.configuration_file == process.configuration or service.unit == process.unit)


def _of_node(node: NodeSpec, process: KafkaProcess | None) -> KafkaProcess:
    service = node.service
    file = service.configuration_file if service is not None else ""
    return KafkaProcess(
        pid=process.pid if process else 0,
        unit=service.unit if service is not None else "",
        command=process.command if process else ("java", MAIN_CLASS, file),
        configuration=file,
        user=process.user if process else "",
        user_id=process.user_id if process else None,
        node_id=str(node.node_id),
        roles=",".join(map(str, node.roles)),
        node=node,
    )


def _as_shell(command: str) -> str:
    """Return a command with the `$` that systemd passes for `$$`."""
    return re.sub(r"\$\$(?=[\w({@*])", "$", command)


def _arguments(commands: Sequence[str], path: str) -> Iterator[str]:
    """Yield the words that a script of the stop gets."""
    for command in map(_as_shell, commands):
        words = command.split()
        if path in words:
            yield from words[words.index(path) + 1 :]


def _can_signal(stop: UnitStop, process: KafkaProcess) -> bool:
    """Return whether the user of the commands can, or if that is unknown (kill(2))."""
    known = stop.user_id is not None and process.user_id is not None and not stop.is_privileged
    return not known or stop.user_id in (_ROOT, process.user_id)


def has_stop_filters(installed: Release | None) -> bool:
    """Return whether kafka-server-stop.sh of a release has --node-id and --process-role."""
    return installed is not None and installed >= _FIRST_WITH_FILTERS
