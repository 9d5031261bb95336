"""Which Java programs of a host the stop of a unit can reach: by its own commands, and by the scripts that they run.

What runs on the host counts, and not only the nodes of an inventory: kafka-server-stop.sh and commands that find
processes by name reach the nodes of other clusters too. A command of which nothing is known can reach each of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import nodes
from kafka_rollout.model.host_state import JavaProcess, UnitStop
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.signals import Signal, StopReader, any_of
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import NodeSpec

_ROOT = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopReach:
    """A text of the stop of a unit that is not known to spare the other Kafka processes of the host."""

    unit: str
    host: str
    setting: str
    """ExecStop or ExecStopPost."""
    text: str
    """The command of the unit, or the line of the script."""
    path: str
    """Of the script; empty: the unit has the text itself."""
    reached: tuple[JavaProcess, ...]
    """Empty: the host does not show its processes."""
    is_certain: bool
    """It reaches these; else the tool cannot tell."""
    why: str = ""
    """Why it cannot tell, the end of a sentence; empty: the form of the text is not known."""
    is_accepted: bool = False
    """The inventory takes the responsibility for what the tool cannot tell."""

    @property
    def shown(self) -> str:
        return hide_credentials(self.text)

    @property
    def sentence(self) -> str:
        if self.path:
            has = f"{self.setting}= of {self.unit} on host {self.host} runs {self.path}: `{self.shown}`"
        else:
            has = f"{self.unit} on host {self.host} has {self.setting}={self.shown}"
        own = [one.node.node_id for one in self.reached if one.node is not None]
        foreign = [one.name for one in self.reached if one.node is None]
        named = [*([f"{nodes(own)} of this host"] if own else []), *foreign]
        no_node = (
            f", which {'is not a node' if len(foreign) == 1 else 'are not nodes'} of this cluster" if foreign else ""
        )
        others = f"{' and '.join(named)}{no_node}"
        if self.is_certain:
            return f"{has}, which can also stop {others}."
        hidden = "another Kafka of this host, which does not show its processes to the SSH user"
        accepted = f" The inventory says that it stops {self.unit} alone." if self.is_accepted else ""
        return (
            f"{has}. The tool cannot tell whether this also stops {others or hidden}"
            f"{self.why and ': '}{self.why}.{accepted}"
        )

    @property
    def remedy(self) -> str:
        if self.is_accepted:
            return "Check again that it does, whenever the command or its script changes."
        if self.is_certain:
            return self._change
        return (
            f"{self._change} Or use a form that the tool knows, such as `kill $MAINPID`, kafka-server-stop.sh with "
            "--node-id=, or `kill $(cat FILE)` with a file that the SSH user can read. If you have tried that it stops "
            f"{self.unit} alone, set `stop_spares_others: true` in `service` of the node in the inventory."
        )

    @property
    def _change(self) -> str:
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


def find_reached(
    stop: UnitStop, node: NodeSpec, others: Sequence[NodeSpec], *, unit: str, host: str
) -> Iterator[StopReach]:
    """Yield the texts of a stop that can reach another Kafka than the node. `others`: the other nodes of the inventory
    on the host, which also count while they do not run."""
    targets = [*_with_nodes(stop.processes or (), others), *([JavaProcess()] if stop.processes is None else [])]
    service = node.service
    reader = StopReader(stop, service.configuration_file if service is not None else "")
    for setting, commands in (("ExecStop", stop.commands), ("ExecStopPost", stop.after)):
        signals: dict[tuple[str, str], list[Signal]] = {}
        for signal in (signal for command in commands for signal in reader.signals(command)):
            signals.setdefault((signal.path, signal.text), []).append(signal)
        for (path, text), of_text in signals.items():
            seen = [(process, _reaches(of_text, process, stop)) for process in targets]
            certain = [process for process, is_reached in seen if is_reached and _is_seen(process)]
            possible = [process for process, is_reached in seen if is_reached is not False]
            if possible:
                yield StopReach(
                    unit=unit,
                    host=host,
                    setting=setting,
                    text=text,
                    path=path,
                    reached=tuple(filter(_is_seen, certain or possible)),
                    is_certain=bool(certain),
                    why=next((one.why for one in of_text if one.why), ""),
                    is_accepted=not certain and service is not None and service.stop_spares_others,
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramReach:
    """A text of the stop of a unit that also ends other Java programs of the host, such as Kafka Connect."""

    setting: str
    text: str
    """As in StopReach."""
    path: str
    """As in StopReach."""
    programs: tuple[JavaProcess, ...]

    @property
    def shown(self) -> str:
        return hide_credentials(self.text)


def find_reached_programs(stop: UnitStop, node: NodeSpec) -> Iterator[ProgramReach]:
    """Yield the texts that certainly reach programs: an unknown one is a blocker if it can reach a Kafka."""
    reader = StopReader(stop, node.service.configuration_file if node.service is not None else "")
    for setting, commands in (("ExecStop", stop.commands), ("ExecStopPost", stop.after)):
        for signal in dict.fromkeys(signal for command in commands for signal in reader.signals(command)):
            if programs := [one for one in stop.programs if _reaches([signal], one, stop)]:
                yield ProgramReach(setting=setting, text=signal.text, path=signal.path, programs=tuple(programs))


def _reaches(signals: Sequence[Signal], process: JavaProcess, stop: UnitStop) -> bool | None:
    """Return whether one of them reaches a process; None: unknown."""
    return any_of(one.selects(process) for one in signals if not one.obeys_user or _can_signal(stop, process))


def _is_seen(process: JavaProcess) -> bool:
    """Return whether it is a known process or node, and not one that the host hides."""
    return process.pid != 0 or process.node is not None


def _with_nodes(processes: Sequence[JavaProcess], others: Sequence[NodeSpec]) -> Iterator[JavaProcess]:
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


def _is_of(process: JavaProcess, node: NodeSpec) -> bool:
    service = node.service
    return service is not None and (service.configuration_file == process.configuration or service.unit == process.unit)


def _of_node(node: NodeSpec, process: JavaProcess | None) -> JavaProcess:
    service = node.service
    file = service.configuration_file if service is not None else ""
    return JavaProcess(
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


def _can_signal(stop: UnitStop, process: JavaProcess) -> bool:
    """Return whether the user of the commands can, or if that is unknown (kill(2))."""
    known = stop.user_id is not None and process.user_id is not None and not stop.is_privileged
    return not known or stop.user_id in (_ROOT, process.user_id)
