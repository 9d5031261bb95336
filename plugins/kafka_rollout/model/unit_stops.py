"""Which Kafka processes of a host the stop of a unit reaches: by its own commands, and by the scripts that they run.

What runs on the host counts, and not only the nodes of an inventory: kafka-server-stop.sh and commands that find
processes by name reach the nodes of other clusters too.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kafka_rollout.base.wording import nodes
from kafka_rollout.model.host_state import KafkaProcess, UnitStop
from kafka_rollout.model.starts import MAIN_CLASS
from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.releases.facts import Release

STOP_SCRIPT = "kafka-server-stop"
_FILTER = re.compile(r"--(node-id|process-role)[= ]([^ '\"]*)")
_AT = r"(?<![\w./$-])(?:/\S*/)?"
_ENDS = r"(?=[\s|;&)`'\"]|$)"
_FINDS = re.compile(rf"{_AT}(pkill|pgrep|killall5?|killproc|start-stop-daemon|pidof|jps|ps){_ENDS}")
_SIGNALS = ("pkill", "killall", "killall5", "killproc", "start-stop-daemon")
_DAEMON_STOP = re.compile(r"(?:^|\s)(?:--stop|-\w*K\w*)(?=\s|$)")
_BY_FILE = re.compile(r"(?:^|\s)(?:--(?:pidfile|pid)[= ]|-p)")
_KILL = re.compile(rf"{_AT}kill{_ENDS}([^|;&)`]*)")
_NO_SIGNAL = re.compile(r"\s(?:-0|-s ?0|--signal[= ]0)(?=\s|$)")
_FILTERS = re.compile(r"\|\s*(?:/\S*/)?([efg]?grep|[gm]?awk)\s([^|]*)")
_OF_AWK = re.compile(r"[^/]*/((?:\\.|[^/\\])+)/")
# A pattern whose text shows whether it is in a command line.
_PLAIN = re.compile(r"(?:[\w/=, -]|\\?\.|\[\w\])+")
_BECOMES = re.compile(r"(?:^|[\s;&|({])(\w+)=(.*)|(?:^|\s)for\s+(\w+)\s+in\s(.*)|(?:^|[\s|])read\s+(?:-r\s+)?(\w+)")
_FUNCTION = re.compile(r"^\s*(?:function\s+)?(\w+)\s*\(\s*\)")
_VARIABLE = re.compile(r"\$\{?(\w+)")
_OWN = "MAINPID"
_OTHER_USER = re.compile(r"(?<![\w./-])(?:/\S*/)?(?:sudo|doas|su|runuser|pkexec|setpriv)(?=\s)")
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
        return f"{has}, which also stops {' and '.join(named)}{no_node}."

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
        seen = [one for one in targets if changes_user or _can_signal(stop, one)]
        for path, found in texts:
            reached: dict[str, list[KafkaProcess]] = {}
            for process in [*seen, *([KafkaProcess()] if is_hidden else [])]:
                text = _reaching(found, process, node, filters=stop.filters)
                if text is not None:
                    reached.setdefault(text if path else found[0], []).append(process)
            for text, processes in reached.items():
                known = tuple(one for one in processes if one.pid or one.node is not None)
                yield StopReach(unit=unit, host=host, setting=setting, text=text, path=path, reached=known)


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


def _can_signal(stop: UnitStop, process: KafkaProcess) -> bool:
    """Return whether the user of the unit can, or if that is unknown (kill(2))."""
    known = stop.user_id is not None and process.user_id is not None and not stop.is_privileged
    return not known or stop.user_id in (_ROOT, process.user_id)


def _reaching(lines: Sequence[str], process: KafkaProcess, node: NodeSpec, *, filters: bool) -> str | None:
    """Return the command in the lines of one script that finds the process, if the script sends it a signal."""
    text = re.sub(r"\|\s*\n", "| ", "\n".join(lines))
    parts = [part.strip() for part in re.split(r"\n|;|&&|\|\||(?<![<>&])&(?![<>&\d])", text)]
    functions = {match[1] for line in lines if (match := _FUNCTION.match(line))}
    found_in: dict[str, str] = {}  # variable → the command that has found its value
    loose = ""
    for part in parts:
        match = _FINDS.search(part)
        if STOP_SCRIPT in part and match is None:
            if _by_script(part, process, node, filters=filters):
                return part
        elif match is not None and _selects(part, match, process):
            if match[1] in _SIGNALS or _KILL.search(part):
                if _NO_SIGNAL.search(part) is None:
                    return part
            elif names := [name for name, _ in _set_in(part)]:
                found_in |= dict.fromkeys(names, part)
            else:
                loose = loose or part
    for part in parts:
        for name, value in _set_in(part):
            calls = loose and any(re.search(rf"(?:\$\(|`)\s*{one}\b", value) for one in functions)
            source = next((found_in[used] for used in _VARIABLE.findall(value) if used in found_in), "")
            if name not in found_in and (source or calls):
                found_in[name] = source or loose
    set_here = {name for part in parts for name, _ in _set_in(part)}
    some = loose or next(iter(found_in.values()), "")
    for kill in (kill for part in parts for kill in _KILL.finditer(part) if not _NO_SIGNAL.search(kill[0])):
        for name in _VARIABLE.findall(kill[1]):
            if name in found_in:
                return found_in[name]
            if some and name != _OWN and name not in set_here:
                return some  # the argument of a function, for example
    return None


def _set_in(part: str) -> list[tuple[str, str]]:
    """Return the variables that a command sets, with their values."""
    return [(one[1] or one[3] or one[5], one[2] or one[4] or "") for one in _BECOMES.finditer(part)]


def _by_script(text: str, process: KafkaProcess, node: NodeSpec, *, filters: bool) -> bool:
    """kafka-server-stop.sh sends SIGTERM to every process of kafka.Kafka, or to those with a node id or with exactly
    these roles in their files (bin/kafka-server-stop.sh)."""
    wanted = dict(_FILTER.findall(text)) if filters else {}
    if (node_id := wanted.get("node-id")) is not None:
        return not node_id.isdigit() or process.node_id in ("", node_id)
    if (roles := wanted.get("process-role")) is not None:
        return not process.roles or {*roles.split(",")} == {*process.roles.replace(" ", "").split(",")}
    return True


def _selects(part: str, match: re.Match[str], process: KafkaProcess) -> bool:
    """Return whether a command that finds processes by name finds this one, or if that is unknown."""
    program, rest = match[1], part[match.end() :]
    shown = f"{process.user} {process.pid} {' '.join(process.command or ('java', MAIN_CLASS))} Kafka"
    words = _words(rest)
    options = [word for word in words if word.startswith("-")]
    names = [word for word in words if not word.startswith("-")]
    if program in ("pkill", "pgrep"):
        if any(re.fullmatch(r"-[a-z]*[FPs]|--(?:pidfile|parent|session)(?:=.*)?", one) for one in options):
            return False
        is_full = any(re.fullmatch(r"-[a-z]*f[a-z]*|--full", one) for one in options)
        return not names or _can_match(names[-1], shown if is_full else "java")
    if program in ("killproc", "start-stop-daemon"):
        stops = program == "killproc" or _DAEMON_STOP.search(rest) is not None
        return stops and _BY_FILE.search(rest) is None and ("java" in rest or "$" in rest)
    if program in ("killall", "pidof"):
        return not names or any("$" in one or one.rpartition("/")[2] == "java" for one in names) or "-r" in options
    if program == "ps" and (
        any(re.fullmatch(r"-[a-zA-Z]*[pq]\d*|--(?:quick-|p)?pid(?:=.*)?", one) for one in options)
        or any(re.fullmatch(r"\$\{?\w+\}?|\d+", one) for one in names[:1])
    ):
        return False
    return all(_passes(one[1], one[2], shown) for one in _FILTERS.finditer(part))


def _passes(program: str, rest: str, shown: str) -> bool:
    """Return whether `grep` or `awk` lets the line of a process through, or if that is unknown."""
    if program.endswith("awk"):
        pattern = _OF_AWK.match(rest)
        return pattern is None or _can_match(pattern[1], shown)
    words = _words(rest)
    patterns = [word for word in words if not word.startswith("-")]
    flags = "".join(word for word in words if word.startswith("-"))
    if not patterns:
        return True
    if "v" in flags:
        return not (_PLAIN.fullmatch(patterns[0]) and re.search(patterns[0], shown))
    return _can_match(patterns[0], shown, ignores_case="i" in flags)


def _can_match(pattern: str, shown: str, *, ignores_case: bool = False) -> bool:
    if _PLAIN.fullmatch(pattern) is None:
        return True
    return re.search(pattern, shown, re.IGNORECASE if ignores_case else 0) is not None


def _words(text: str) -> list[str]:
    """Return the words of a command, up to the end of its part of a pipeline."""
    lexer = shlex.shlex(text.replace("`", " "), posix=True, punctuation_chars="|<>()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    found: list[str] = []
    try:
        for word in lexer:
            if set(word) <= set("|<>()"):
                break
            found.append(word)
    except ValueError:  # a quote without its end: the quotes around the whole are those of a shell of the unit
        return re.split(r"[|<>()]", text)[0].replace("'", "").replace('"', "").split()
    return found


def has_stop_filters(installed: Release | None) -> bool:
    """Return whether kafka-server-stop.sh of a release has --node-id and --process-role."""
    return installed is not None and installed >= _FIRST_WITH_FILTERS
