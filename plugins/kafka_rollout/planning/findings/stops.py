"""Findings about what else stops with the unit of a node, outside every gate: by its own command, by systemd, or
through the link."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from kafka_rollout.base.findings import BLOCKER, WARNING, Finding, FindingCode
from kafka_rollout.base.wording import few, few_quoted, nodes
from kafka_rollout.model.host_state import HostState, LinkUser, StoppedUnit
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.signals import STOP_SCRIPT
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import ClusterSpec, NodeSpec
from kafka_rollout.model.unit_settings import AFTER_FAILURE, exit_code_of
from kafka_rollout.model.unit_stops import find_reached, find_reached_programs

_SHOWN = 3
_KILL = re.compile(r"\b(?:p?kill(?:all)?|killproc|start-stop-daemon)\b.*\s-(?:s ?|-signal[= ])?(?:SIG)?(?:KILL|9)\b")
# They send SIGKILL after SIGTERM and some seconds: killproc of LSB by default.
_KILLS_LATER = re.compile(
    r"\bkillproc\b(?!.*\s-(?:[A-Z]{2,}|\d+)\b)|\bstart-stop-daemon\b.*\s(?:--retry[= ]|-R ?)(?:\d+(?![\d/])|\S*KILL)"
)
_SENDS = re.compile(
    r"\b(?:p?kill(?:all)?|killproc)\b(?!.*\s-0\b)|\bstart-stop-daemon\b.*\s(?:--stop|-K)\b|kafka-server-stop"
)
# kafka-server-stop.sh sends the signal that this variable names.
_VARIABLE = re.compile(r"(?:^|[\s;'\"])SIGNAL=['\"]?([A-Za-z0-9]+)")
# On which a JVM runs its shutdown hooks, which is Kafka's controlled shutdown: SIGHUP, SIGINT, SIGTERM.
_SHUTS_DOWN = (1, 2, 15)
_NAMES = frozenset({"1", "2", "15", "HUP", "INT", "TERM", ""})
_BY_LINK = "Requires"
_FROM_BOTH_SIDES = "StopPropagatedFrom"

STOP_REACHES_OTHERS = FindingCode(
    "STOP-REACHES-OTHER-NODES",
    (BLOCKER, WARNING),
    "A stop of the unit of a node stops other Kafka processes of its host too, also those of other clusters, because a "
    "command of it or of a script that it runs can send them a signal, or because their units depend on it. Or the "
    "tool cannot tell what a command or a script does: a warning if the inventory has stop_spares_others. Or its unit "
    "has started another Kafka.",
)
STOP_REACHES_UNITS = FindingCode(
    "STOP-REACHES-OTHER-UNITS",
    WARNING,
    "A stop of a node ends other programs of its host: units that depend on its unit, and Java programs that a command "
    "of the stop finds.",
)
LINK_SHARED = FindingCode(
    "LINK-SHARED",
    (BLOCKER, WARNING),
    "Something else on the host starts through the link that the run switches, or from its package. A blocker for a "
    "Kafka of another cluster, also if the tool cannot tell.",
)
STOP_NOT_CONTROLLED = FindingCode(
    "STOP-NOT-CONTROLLED",
    (BLOCKER, WARNING),
    "A stop of the unit kills Kafka, or sends a signal by which it does not shut down: partitions have no leader "
    "until the session of the broker ends, and the next start recovers all logs. A warning for a script that kills "
    "only what has not ended after some time.",
)
STOP_ACTS = FindingCode(
    "STOP-ACTS-ON-HOST",
    (BLOCKER, WARNING),
    "systemd starts another unit at each stop of a node (OnFailure=, OnSuccess=), or acts on the whole host "
    "(FailureAction=, SuccessAction=), which blocks. A JVM ends with the exit code 143 at a stop, which is a failure "
    "for systemd unless SuccessExitStatus= has it.",
)
STOP_CODES = (STOP_REACHES_OTHERS, STOP_REACHES_UNITS, STOP_NOT_CONTROLLED, STOP_ACTS, LINK_SHARED)


def stop_findings(cluster: ClusterSpec, node: NodeSpec, host: HostState) -> Iterable[Finding]:
    """Yield what stops with the unit of a node on this host, or changes its release with it."""
    others = [
        one
        for one in cluster.nodes
        if one != node and one.service is not None and (one.service.host == host.name or one.node_id in host.others)
    ]
    for reach in find_reached(host.stop, node, others, unit=host.unit, host=host.name):
        yield STOP_REACHES_OTHERS.found(
            f"node {node.node_id}",
            reach.sentence,
            reach.remedy,
            severity=WARNING if reach.is_accepted else BLOCKER,
            covers=(f"{reach.path} {reach.shown}".strip(),),
        )
    for programs in find_reached_programs(host.stop, node):
        names = few((one.name for one in programs.programs), limit=_SHOWN)
        place = (
            f"{programs.path} (of {programs.setting}=): `"
            if programs.path
            else f"{programs.setting}= of {host.unit}: `"
        )
        units = " ".join(dict.fromkeys(one.unit for one in programs.programs if one.unit))
        yield STOP_REACHES_UNITS.found(
            f"node {node.node_id}, {names}",
            f"A stop of {host.unit} on host {host.name} also ends {names}, by {place}{programs.shown}`. A start of "
            f"{host.unit} does not start it again.",
            "Let it send SIGTERM to $MAINPID alone"
            + (f", or run `systemctl start {units}` after the step of the node." if units else "."),
        )
    yield from _by_group(node, host)
    yield from _by_signal(node, host)
    yield from _by_result(node, host)
    yield from _by_systemd(node, host, others)
    yield from _by_link(node, host, others)


def _by_group(node: NodeSpec, host: HostState) -> Iterable[Finding]:
    """A stop sends a signal to each process in the control group, unless KillMode= limits it to the main process."""
    if host.kill_mode in ("process", "none"):
        return
    for one in host.stop.grouped:
        name = f"process {one.pid} ({one.program or one.configuration or MAIN_CLASS})"
        runs = f"{host.unit} on host {host.name} has also started {name}, which a stop of node {node.node_id} ends, too"
        if one.is_kafka:
            yield STOP_REACHES_OTHERS.found(
                f"node {node.node_id}",
                f"{runs}: it is another Kafka, in the control group of the unit.",
                "Give it a unit of its own, and remove it from the command and the scripts of this one. The change "
                f"needs a stop of {host.unit}, which ends both: choose a time at which both clusters can miss them.",
                severity=BLOCKER,
                covers=(name,),
            )
        else:
            yield STOP_REACHES_UNITS.found(
                f"node {node.node_id}, {name}",
                f"{runs}: it is in the control group of the unit.",
                f"If each start of {host.unit} starts it again, no action is needed: the approval of the plan accepts "
                "it. Else give it a unit of its own.",
            )


def _by_signal(node: NodeSpec, host: HostState) -> Iterable[Finding]:
    kills = [f"ExecStop={hide_credentials(command)}" for command in host.stop.commands if _kills(command)]
    if host.kill_signal is not None and host.kill_signal not in _SHUTS_DOWN:
        kills.append(f"KillSignal={host.kill_signal}")
    by_script = any(STOP_SCRIPT in command for command in host.stop.commands)
    if by_script and host.stop.signal.upper().removeprefix("SIG") not in _NAMES:
        kills.append(
            f"SIGNAL={hide_credentials(host.stop.signal)} in its environment, which kafka-server-stop.sh sends"
        )
    if kills:
        names = " and ".join(one.partition("=")[0] + "=" for one in kills)
        yield STOP_NOT_CONTROLLED.found(
            f"node {node.node_id}",
            f"{host.unit} on host {host.name} has {' and '.join(kills)}: a stop is no controlled shutdown of Kafka.",
            f"Remove {names} from the unit, its drop-ins and its environment (`systemctl edit --full {host.unit}`). "
            "systemd then sends SIGTERM, which is Kafka's controlled shutdown.",
            severity=BLOCKER,
        )
    commands = {part.strip(): path for path, line in host.stop.lines for part in re.split(r"[;&|]+", line)}
    sending = [command for command in commands if _SENDS.search(command)]
    killing = [command for command in sending if _kills(command) or _KILLS_LATER.search(command)]
    if killing:
        is_only = all(map(_kills, sending))
        yield STOP_NOT_CONTROLLED.found(
            f"node {node.node_id}, script",
            f"{host.unit} on host {host.name} is stopped by a script that "
            + ("kills Kafka" if is_only else "can kill Kafka before the end of its controlled shutdown")
            + f": {few((f'{commands[one]}: `{hide_credentials(one)}`' for one in killing), limit=_SHOWN)}.",
            "Let the script send SIGTERM, and wait for the end of the process, at least 180 s. Or let systemd stop the "
            f"node, by a unit without this script (`systemctl edit --full {host.unit}`).",
            severity=BLOCKER if is_only else WARNING,
        )


def _by_result(node: NodeSpec, host: HostState) -> Iterable[Finding]:
    """Yield what systemd does because the unit has ended, between the stop of a node and its start."""
    for is_of_host in (True, False):
        shown = [
            hide_credentials(one) for one in host.stop_actions if one.partition("=")[0].endswith("Action") is is_of_host
        ]
        if not shown:
            continue
        fails = any(one.partition("=")[0] in AFTER_FAILURE for one in shown)
        status = exit_code_of(host.kill_signal)
        because = (
            f"A stop ends the JVM with the exit code {status}, and SuccessExitStatus= of {host.unit} on host "
            f"{host.name} does not have it, so systemd counts each stop of a run as a failure"
            if fails
            else f"systemd counts each stop of {host.unit} on host {host.name} as a success"
        )
        does = "acts on the whole host" if is_of_host else "starts other units"
        rest = "" if fails else f"Remove {shown[0].partition('=')[0]}= from the unit and its drop-ins"
        yield STOP_ACTS.found(
            f"node {node.node_id}, {shown[0].partition('=')[0]}=",
            f"{because}, and {does}: {few_quoted(shown, limit=_SHOWN)}. This happens while node "
            f"{node.node_id} is stopped"
            + ("." if is_of_host else ", and such a unit can start it before the installation, or change the host."),
            (rest or f"Add `SuccessExitStatus={status}` to [Service] of the unit")
            + f" (`systemctl edit --full {host.unit}`), and run `systemctl daemon-reload`."
            + ("" if is_of_host else " If these units only report, no action is needed."),
            severity=BLOCKER if is_of_host else WARNING,
            covers=shown,
        )


def _kills(command: str) -> bool:
    named = [match[1].upper().removeprefix("SIG") for match in _VARIABLE.finditer(command)]
    return _KILL.search(command) is not None or (STOP_SCRIPT in command and not {*named} <= _NAMES)


def _by_link(node: NodeSpec, host: HostState, others: Sequence[NodeSpec]) -> Iterable[Finding]:
    is_package = node.service is not None and node.service.package is not None
    from_ = f"from the package in {host.symlink}" if is_package else f"through {host.symlink}"
    change = "installation" if is_package else "switch"
    own = {one: _node_of(one, others) for one in host.link_users}
    for user in host.link_users:
        if not user.starts_kafka or own[user] is not None:
            continue
        name = user.process.name if user.process is not None else user.name
        no_node = f"{name}, a Kafka that is not a node of this cluster"
        if user.doubt:
            says = f"The tool cannot tell whether {no_node}, starts {from_} too on host {host.name}: {user.doubt}."
        else:
            says = f"On host {host.name}, {no_node}, starts {from_} too."
        yield LINK_SHARED.found(
            f"node {node.node_id}, {user.name}",
            f"{says} After the {change}, its next start, such as one by systemd after a crash, is on the other "
            "release, outside every gate of its cluster.",
            f"Let {user.name} start from a folder of its own that its command line names, outside of {host.symlink}. "
            "Then restart it."
            if is_package
            else f"Give {user.name} a link of its own, which its class path names, run `systemctl daemon-reload`, and "
            "restart it.",
            severity=BLOCKER,
        )
    rest = [one for one in host.link_users if not one.starts_kafka or own[one] is not None]
    if not rest:
        return
    names, step = ", ".join(dict.fromkeys(one.name for one in rest)), f"the step of node {node.node_id}"
    shared = [known.node_id for one in rest if (known := own[one]) is not None]
    foreign = ", ".join(dict.fromkeys(one.name for one in rest if own[one] is None))
    yield LINK_SHARED.found(
        f"node {node.node_id}, {names}",
        f"On host {host.name}, {names} {'starts' if len(rest) == 1 else 'start'} {from_} too. After the {change}, the "
        "next start of each is on the other release, and a process that runs can miss classes that it has not loaded "
        "yet.",
        " ".join(
            filter(
                None,
                (
                    "" if is_package else "Give each of them a link of its own, then run `systemctl daemon-reload`.",
                    f"Correct `symlink` of {nodes(shared)} in the inventory." if shared and not is_package else "",
                    f"{'Stop' if is_package else 'Otherwise stop'} {foreign} before {step}, and start {foreign} after "
                    "it."
                    if foreign
                    else "",
                ),
            )
        ),
        severity=WARNING,
    )


def _node_of(user: LinkUser, others: Sequence[NodeSpec]) -> NodeSpec | None:
    """Return the node of the cluster that a unit or a process of the host is."""
    file = user.process.configuration if user.process is not None else ""
    return next(
        (
            one
            for one in others
            if one.service is not None and (one.service.unit == user.name or one.service.configuration_file == file)
        ),
        None,
    )


def _by_systemd(node: NodeSpec, host: HostState, others: Sequence[NodeSpec]) -> Iterable[Finding]:
    of_unit = {one.service.unit: one for one in others if one.service is not None}
    stopped = {unit.name: unit for unit in host.stopped_units}
    for unit in host.stopped_units:
        subject, why = f"node {node.node_id}, {unit.name}", " and ".join(_reasons(unit, stopped))
        other = next((of_unit[name] for name in unit.names if name in of_unit), None)
        if other is not None:
            yield STOP_REACHES_OTHERS.found(
                subject,
                f"A stop of {host.unit} on host {host.name} also stops {unit.name}, which is node {other.node_id}, "
                f"outside every gate: {why}. A start of {host.unit} need not start it again.",
                _cut(unit),
            )
        else:
            yield STOP_REACHES_UNITS.found(
                subject,
                f"A stop of {host.unit} on host {host.name} also stops {unit.name}: {why}. A start of {host.unit} need "
                "not start it again.",
                f"Start {unit.name} again after the step of the node, or cut the dependency. {_cut(unit)}",
            )


def _reasons(unit: StoppedUnit, stopped: Mapping[str, StoppedUnit]) -> list[str]:
    """Return the settings by which a stop reaches a unit, from the unit of the node on."""
    before = _reasons(stopped[unit.of], stopped) if unit.of in stopped else []
    return [*before, f"{unit.name} has {' and '.join(f'{setting}={unit.of}' for setting in unit.settings)}"]


def _cut(unit: StoppedUnit) -> str:
    """An empty assignment in a drop-in removes no dependency (systemd.unit(5)), so its lines themselves must go."""
    places = " and ".join(f"{setting}=" for setting in unit.settings)
    if _FROM_BOTH_SIDES in unit.settings:
        places += f" (or {unit.name} from PropagatesStopTo= of {unit.of})"
    link = (
        f" If neither names it, remove the link {unit.of} in the folder {unit.name}.requires, and run `systemctl "
        "daemon-reload`."
        if _BY_LINK in unit.settings
        else ""
    )
    return (
        f"Run `systemctl edit --full {unit.name}` on the host, and remove {unit.of} from {places} in the file and in "
        f"its drop-ins. Wants= and After= can name it: they stop nothing.{link}"
    )
