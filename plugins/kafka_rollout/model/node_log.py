"""Conclusions from a node's log. Every conclusion is made here, by the same rules.

Rules, because a client can write whole lines in the layout of the log (`base/log_lines.py`):

1. The log of a process begins where the runtime says so: by the process's id and start time, or by the byte at which
   the file ended before the start. No line is a begin.
2. The layout counts as known only if the process's first lines contain the one that each start of Kafka writes before
   it opens a port (LoggingSignalHandler), exactly in that layout. A log level without INFO has no such line.
3. A success counts only while the log was read without a gap since the begin of the process: what a gap hides can be
   the error. It never removes an error.
4. An error is kept as long as the process runs, also if the log is in no known layout. Only a new process, a counter of
   Kafka's or an approver removes it (`gates/coordinators.py`).
5. What only helps a reader (an excerpt, the first error, a refused registration, the address of a client) decides
   nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kafka_rollout.base.internal_topics import GROUPS_TOPIC, SHARE_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.base.json_forms import parse_json
from kafka_rollout.base.log_lines import LogEvent, LogLayout, is_throwable, parse_events
from kafka_rollout.model.state import UNKNOWN_CLIENT, LoggedRequest

READ_LINES = 300
_BEFORE, _AFTER = 10, 30
_LONGEST_LINE = 600
_SHOWN = 300  # characters of a line in a sentence

# Messages and the classes that log them, in all releases from 3.3 to 4.4. Both coordinators of 3.x end the message of a
# failed load with the partition; the cause is an exception. TransactionStateManager also finishes a failed load with
# its line of a finished one.
_PARTITION = rf"(?P<partition>(?:{GROUPS_TOPIC}|{TRANSACTIONS_TOPIC}|{SHARE_TOPIC})-\d+)"
_GROUPS_3, _TRANSACTIONS, _RUNTIME = "GroupMetadataManager", "TransactionStateManager", "CoordinatorRuntime"
_FAILED = {
    _GROUPS_3: re.compile(rf"Error loading offsets from {_PARTITION}"),
    _TRANSACTIONS: re.compile(rf"Error loading transactions from transaction log {_PARTITION}"),
    _RUNTIME: re.compile(rf"Failed to load metadata from {_PARTITION} with epoch \d+ due to .*"),
}
_FINISHED = {
    _GROUPS_3: re.compile(rf"Finished loading offsets and group metadata from {_PARTITION} in \d+ milliseconds.*"),
    _TRANSACTIONS: re.compile(rf"Finished loading \d+ transaction metadata from {_PARTITION} in \d+ milliseconds.*"),
    _RUNTIME: re.compile(rf"Finished loading of metadata from {_PARTITION} with epoch \d+ in \d+ms.*"),
}
_SIGNAL_HANDLERS = {
    "org.apache.kafka.common.utils.LoggingSignalHandler",
    "org.apache.kafka.common.utils.internals.LoggingSignalHandler",  # from 4.4.0 on
}
_STARTED = re.compile(r"Registered signal handlers for [A-Z]+(, [A-Z]+)*")
# Agents and the JVM can write before Kafka does, 3.x its MBean, and metrics reporters their clients' values (logAll of
# AbstractConfig), which are not counted. No port is open before this line.
_FIRST_LINES = 100
_OF_VALUES = "\t"
REMOTE_LOG_MANAGER = "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager"
_INITIALISED = "Initialized topic-based RLMM resources successfully"
# The manager tries this again by itself, and logs the success or another error.
# Its text by release: 3.6.2 "creating remote log metadata topic", 3.7.2 and 4.0.1 "creating NAME topic", 4.3.1
# "querying or creating NAME topic".
_TRIED_AGAIN = re.compile(r"Encountered error while (querying or )?creating (\S+|remote log metadata) topic\.")
_FAULTS = "org.apache.kafka.server.fault.LoggingFaultHandler"
_PUBLISHING = "Encountered metadata publishing fault: "
# DynamicConfigPublisher writes no blank before the name of a subscription.
_CONFIG_FAULT = re.compile(
    rf"{_PUBLISHING}Error updating "
    r"(?P<kind>topic |client metrics ?)(?P<name>\S+) with new configuration: .*"
)
# Of the broker's own settings. A combined node has a DynamicConfigPublisher for each role, with equal lines.
_BROKER_FAULT = re.compile(rf"{_PUBLISHING}Error updating node with new configuration: .*")
BROKER_SETTINGS = ("settings of this broker", "settings of this broker in its second role")
"""The faults of a process with one role, and with two."""
# MetadataVersionConfigValidator, from 3.7.1 on. The cause is the next line; releases before 4.2 use Scala's require.
_LEVEL_FAULT = (
    "Encountered metadata publishing fault: Broker configuration does not support the cluster MetadataVersion"
)
_DIRECTORIES = "Multiple log directories (aka JBOD) are not supported in the current MetadataVersion "
_DIRECTORIES_CAUSE = re.compile(
    rf"java\.lang\.IllegalArgumentException: (?:requirement failed: )?{re.escape(_DIRECTORIES)}(?P<level>\S+)\. Need .*"
)
_LIFECYCLE = "BrokerLifecycleManager"
_REGISTERED = re.compile(r"Successfully registered broker .*")
_MOST_OTHERS = 50  # errors and faults that are kept


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPart:
    """Lines that a node's process has logged since an earlier part, without lines of an earlier process."""

    pid: int
    started_at: float | None
    lines: tuple[str, ...] = ()
    position: str = ""
    """Where the next part begins, for the runtime alone."""
    is_first: bool = False
    """The part begins with the process."""
    problem: str = ""
    """Why lines of the process are missing before this part, as the end of a sentence after `the log`; empty if none
    are."""
    is_cut: bool = False
    """More was there to read: the next part continues."""


def directories_fault(level: str) -> str:
    """Return the fault of a broker with several log directories at a metadata.version such as `3.6-IV2`."""
    return f"log directories at metadata.version {level}"


UNKNOWN_LAYOUT = "is in a layout or at a level that is not known"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenLog:
    """What the log of one process has shown so far."""

    pid: int
    """The process."""
    started_at: float | None
    """The process."""
    position: str = ""
    """As in LogPart."""
    lines: int = 0
    """How many of its first lines were read while the layout was unknown, without those of values."""
    layout: LogLayout | None = None
    problem: str = ""
    """Why successes do not count (any more), as in LogPart."""
    loaded: tuple[str, ...] = ()
    """Coordinator partitions (`topic-partition`) whose load has finished."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Coordinator partition → the error of a failed load with its cause."""
    has_initialised: bool = False
    """TopicBasedRemoteLogMetadataManager."""
    remote_errors: tuple[str, ...] = ()
    """Its errors."""
    faults: tuple[str, ...] = ()
    """What the process could not apply of the metadata, and each start finds again: `topic NAME` and
    `client metrics NAME` of settings, BROKER_SETTINGS, and `directories_fault`."""
    last: tuple[str, ...] = ()
    """The last line, if it is an error whose cause can follow in the next part."""
    refusal: str = ""
    """Why its registration was refused last; empty after it was registered."""
    is_cut: bool = False
    """Its end has not been read yet, so what it does not show proves nothing."""

    def is_of(self, pid: int | None, started_at: float | None) -> bool:
        """Return whether this is the log of the process; two readings of one start time differ by rounding."""
        if pid != self.pid or self.started_at is None or started_at is None:
            return pid == self.pid
        return abs(started_at - self.started_at) < 1.0

    @property
    def why_unknown(self) -> str:
        """Why the log proves no success, as the end of a sentence after `the log`; empty if it can prove one."""
        if self.problem:
            return self.problem
        return "" if self.layout else "does not show the start of its process yet, in a layout that can be read"

    @property
    def who(self) -> str:
        return f"process {self.pid}"


def can_be_read(lines: Sequence[str]) -> bool:
    """Return whether one of the lines is in a layout that conclusions can be made from."""
    return bool(parse_events(lines))


def read_part(seen: SeenLog | None, part: LogPart) -> SeenLog:
    """Return what the log has shown with one more part. The log of another process begins again."""
    if seen is None or not seen.is_of(part.pid, part.started_at):
        problem = "" if part.is_first else "was not read since the start of its process"
        seen = SeenLog(pid=part.pid, started_at=part.started_at, problem=problem)
    position = part.position or seen.position
    seen = replace(seen, position=position, problem=seen.problem or part.problem, is_cut=part.is_cut)
    events = parse_events(part.lines)
    seen = _with_layout(seen, part, events)
    counts = not seen.problem and seen.layout is not None
    # The cause of the last error is in this part, if no line is missing between.
    before = () if part.problem else seen.last
    for event in parse_events(before) if part.lines else ():
        seen = _with_error(seen, event, (*before, *part.lines[:1]))
    for event in events:
        if not event.is_of_kafka:
            continue
        if event.level in {"ERROR", "FATAL"}:
            seen = _with_error(seen, event, part.lines)
        elif event.level == "INFO" and counts and event.layout == seen.layout:
            seen = _with_success(seen, event)
        if event.class_name == _LIFECYCLE:
            seen = _with_registration(seen, event)
    if part.lines or part.problem:
        is_open = events and events[-1].number == len(part.lines) - 1 and _can_have_cause(events[-1])
        seen = replace(seen, last=part.lines[-1:] if is_open else ())
    return seen


def _can_have_cause(event: LogEvent) -> bool:
    """Return whether `_with_error` reads the line after the event."""
    return event.level == "ERROR" and (event.message == _LEVEL_FAULT or bool(_partition(_FAILED, event)))


def _with_layout(seen: SeenLog, part: LogPart, events: Sequence[LogEvent]) -> SeenLog:
    if seen.layout is not None or seen.problem:
        return seen
    starts = {
        event.number: event.layout
        for event in events
        if event.logger in _SIGNAL_HANDLERS and event.level == "INFO" and _STARTED.fullmatch(event.text)
    }
    lines = seen.lines
    for number, line in enumerate(part.lines):
        if lines >= _FIRST_LINES:
            break
        if number in starts:
            return replace(seen, layout=starts[number])
        lines += not line.startswith(_OF_VALUES)
    problem = "" if lines < _FIRST_LINES else UNKNOWN_LAYOUT
    return replace(seen, lines=lines, problem=problem)


def _with_error(seen: SeenLog, event: LogEvent, lines: Sequence[str]) -> SeenLog:
    # A stack trace can follow; its first line is the cause.
    following = lines[event.number + 1].strip() if event.number + 1 < len(lines) else ""
    if failed := _partition(_FAILED, event):
        cause = following if is_throwable(following) else ""
        error = " ".join(filter(None, (event.message.strip(), cause)))
        return replace(seen, failed={**seen.failed, failed: hide_credentials(error)[:_SHOWN]})
    if event.logger == REMOTE_LOG_MANAGER and not _TRIED_AGAIN.fullmatch(event.message):
        return replace(seen, remote_errors=_with(seen.remote_errors, hide_credentials(event.message)[:_SHOWN]))
    if event.logger == _FAULTS and (fault := _CONFIG_FAULT.fullmatch(event.message)):
        return replace(seen, faults=_with(seen.faults, f"{fault['kind'].strip()} {fault['name']}"))
    if event.logger == _FAULTS and _BROKER_FAULT.fullmatch(event.message):
        return replace(seen, faults=_with(seen.faults, BROKER_SETTINGS[BROKER_SETTINGS[0] in seen.faults]))
    if event.logger == _FAULTS and event.message == _LEVEL_FAULT and (found := _DIRECTORIES_CAUSE.fullmatch(following)):
        return replace(seen, faults=_with(seen.faults, directories_fault(found["level"])))
    return seen


def _with_success(seen: SeenLog, event: LogEvent) -> SeenLog:
    if finished := _partition(_FINISHED, event):
        return replace(seen, loaded=tuple(sorted({*seen.loaded, finished})))
    if event.logger == REMOTE_LOG_MANAGER and event.message == _INITIALISED:
        return replace(seen, has_initialised=True)
    return seen


def _with_registration(seen: SeenLog, event: LogEvent) -> SeenLog:
    if event.message.startswith("Unable to register"):
        return replace(seen, refusal=hide_credentials(event.message)[:_SHOWN])
    return replace(seen, refusal="") if _REGISTERED.fullmatch(event.message) else seen


def _partition(expressions: Mapping[str, re.Pattern[str]], event: LogEvent) -> str:
    """Return the partition of a message that its own class logged; empty for another message."""
    expression = expressions.get(event.class_name)
    found = None if expression is None else expression.fullmatch(event.message)
    return found["partition"] if found else ""


def _with(found: tuple[str, ...], one: str) -> tuple[str, ...]:
    return found if one in found or len(found) >= _MOST_OTHERS else (*found, one)


# `ssl.key.password=x`, `"token": "x"`, Java's `secret\=x`, options of PlainLoginModule. Without quotes, the value ends
# where another setting begins.
_NAME = (
    r"pass(?:w(?:or)?d|phrase)?\b|passw(?:or)?d|passphrase|pwd|secret|token|credential|api[._-]?key|access[._-]?key"
    r"|account[._-]?key|private[._-]?key|keystore\.key|signature|\buser_(?>[^\s=:]+)|(?:stored|server)_?key|\bsalt|hmac"
    r"|user\.info|\blicense|\bpw\b|(?:master|encryption|signing|sas)[._-]?key|passcode|\bbind[._-]?(?:pw|cred)"
)
# A match begins with a word: from each character of a long word, the search would need the square of its length.
_SECRET = re.compile(
    rf"((?<![\w.-])[\w.-]*(?:{_NAME})[\w.-]*\\?[\"']?\s*\\?[=:]\s*)"
    r"(\"(?:[^\"\\]|\\.)*\"|'(?:[^'\\]|\\.)*'|.+?(?=[,;]\s*[\w.-]+\s*\\?[=:]|\s+\w+=|$))",
    re.IGNORECASE,
)
_OPTION = re.compile(rf"((?:^|\s)-{{1,2}}[\w-]*(?:{_NAME}|pass)[\w-]*\s+)(\"[^\"]*\"|'[^']*'|\S+)", re.IGNORECASE)
_REST = re.compile(
    r"(jaas\S*\s*\\?[=:]\s*|\bcookie:\s*|authorization\b[\"']?\s*\\?[=:]?\s*|-----BEGIN [A-Z0-9 ]+-----).*",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"\b((?:Bearer|Basic|Negotiate)\s+)[A-Za-z0-9._~+/=-]{6,}")
_INVALID = re.compile(rf"(Invalid value )(.*)( for configuration \S*(?:{_NAME}|jaas|\.key\b))", re.IGNORECASE)
_BASE64 = re.compile(
    r"\s*(?:[A-Za-z0-9+/]{40,}={0,2}|[A-Za-z0-9+/]+={1,2}|-----END [A-Z0-9 ]+-----)\s*"
)  # of a PEM block
_ADDRESS = re.compile(r"://[^/\s@]+@")
# Of a JSON web token, `curl -u NAME:…` and `--user`, `sshpass -p`, `ldapsearch -w`, `mysql -p…`, a signature in an
# address, a user in ZooKeeper or in the address of Oracle's driver, a word after `with password`, and a quoted one
# after `password`.
_TOKEN = re.compile(r"\beyJ[\w-]+\.[\w-]*(?:\.[\w-]*)?")
_OTHERS = re.compile(
    r"((?:^|\s)(?:-u|--user)(?:\s+|=)[^\s:]+:|\bsshpass\s+-p\s*|\bldap\w+\s(?:.*?\s)?-w\s*|"
    r"\bmysql\w*\s(?:.*?\s)?-p(?=\S)|[?&]sig=|\bsuper:|\bjdbc:oracle:\w+:[^/\s]+/|"
    r"\bwith (?:pass(?:word|phrase)) |\bpassword (?=[\"']))(\"[^\"]*\"|'[^']*'|[^\s@]+)",
    re.IGNORECASE,
)
# A client chooses how long a line is: a group id has up to 32,767 bytes.
_MOST_READ = 1000  # characters, more than are shown
_INVALID_CUT = re.compile(r"(Invalid value ).*")  # the name of the setting follows the value


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExcerpt:
    node_id: int
    name: str
    at: float
    """When it was read (epoch seconds)."""
    lines: tuple[str, ...] = ()
    problem: str = ""
    """Why the log could not be read; then `lines` is empty."""


def cut_excerpt(lines: Sequence[str]) -> tuple[str, ...]:
    """Return the lines around the last error, or the last lines if there is no error. Hides possible credentials."""
    shown = [line.rstrip() for line in lines]
    events = parse_events(shown)
    errors = [event.number for event in events if event.level in {"ERROR", "FATAL"}]
    throwables = [number for number, line in enumerate(shown) if is_throwable(line)]
    last = max((*errors, *throwables[-1:]), default=len(shown) - 1)
    # The error of a stack trace is its first line.
    start = max((number for number in errors if number <= last), default=last)
    begin = max(0, min(start - _BEFORE, len(shown) - _BEFORE - _AFTER))
    return tuple(hide_credentials(line)[:_LONGEST_LINE] for line in shown[begin : begin + _BEFORE + _AFTER])


# What systemd writes about a unit into the journal of the unit.
_OF_SYSTEMD = re.compile(r"(?:systemd\[1\]: )?(?:[\w@:.\\-]+\.service: |(?:Started|Starting|Stopped|Stopping) )\S.*")
_ERROR_WORDS = ("ERROR", "FATAL", "Exception", "Error")  # of a log in an unknown layout, or of the output of the JVM
_MOST_OF_JVM = 3  # lines of a reason
# With these lines the JVM says that it does not start. The reason is in the lines before or after them.
_NOT_STARTED = re.compile(
    r"Error occurred during initialization of VM|Error: Could not create the Java Virtual Machine\."
    r"|Error: A fatal exception has occurred\. Program will exit\."
)
_OF_JVM = re.compile(rf"{_NOT_STARTED.pattern}|Picked up .*|.* VM warning: .*")


def find_first_error(lines: Sequence[str]) -> str:
    """Return the first error in the lines of a process with its last cause, else the first lines that the JVM wrote.

    Empty without lines. What systemd says about the unit counts only if there is nothing else.
    """
    shown = [line.rstrip() for line in lines if line.strip()]
    own = [line for line in shown if not _OF_SYSTEMD.fullmatch(line)]
    found = _first_error(own) or _first_error(shown)
    return hide_credentials(found.strip())[:_SHOWN]


def _first_error(lines: Sequence[str]) -> str:
    events = parse_events(lines)
    if not events:
        return _without_layout([line.strip() for line in lines])
    ends = [*(event.number for event in events[1:]), len(lines)]
    alone = ""
    for event, end in zip(events, ends, strict=True):
        # The reason is in the exception, and at last in its cause.
        reasons = [line for line in lines[event.number + 1 : end] if is_throwable(line) and not line[0].isspace()]
        is_refusal = event.class_name == _LIFECYCLE and event.message.startswith("Unable to register")
        if event.level in {"ERROR", "FATAL"} or is_refusal:
            return reasons[-1] if reasons else lines[event.number]
        if end == len(lines) and reasons:
            alone = reasons[-1]  # an exception that ends the process stands alone at the end
    return alone or lines[-1]


def _without_layout(lines: Sequence[str]) -> str:
    """Return the first error in lines of the JVM or of a script. A process that is started again repeats its lines."""
    said = [line for line in lines if not _OF_JVM.fullmatch(line)] or lines
    has_started = not any(_NOT_STARTED.fullmatch(line) for line in lines)
    messages = list(dict.fromkeys(line for line in said if not line.startswith("at ")))
    begin = next((n for n, line in enumerate(messages) if any(word in line for word in _ERROR_WORDS)), None)
    if begin is not None:
        return "; ".join(messages[begin : begin + _MOST_OF_JVM])
    return "; ".join(messages[-1 if has_started else -_MOST_OF_JVM :])


def hide_credentials(line: str) -> str:
    """Return the first 1,000 characters of the line with `[hidden]` for each value that can be a credential.

    Callers cut the result, not the line: a credential can be known by what follows it.
    """
    if len(line) > _MOST_READ:
        line = _INVALID_CUT.sub(r"\1[hidden]", line[:_MOST_READ])
    if _BASE64.fullmatch(line):
        return "[hidden]"
    line = _OTHERS.sub(r"\1[hidden]", _TOKEN.sub("[hidden]", line))
    line = _ADDRESS.sub("://[hidden]@", _REST.sub(r"\1[hidden]", _INVALID.sub(r"\1[hidden]\3", line)))
    return _SECRET.sub(r"\1[hidden]", _OPTION.sub(r"\1[hidden]", _SCHEME.sub(r"\1[hidden]", line)))


_REQUEST = "Completed request:"
_REQUEST_LOGGER = "kafka.request.logger"
# Local and remote address with port, then one or more numbers.
_CONNECTION = re.compile(r"[^-]+-(?P<address>.+):\d+(?:-\d+)+")


def find_logged_requests(lines: Iterable[str]) -> tuple[LoggedRequest, ...]:
    """Return the different requests in these lines, in their order: what the log says, which no counter confirms.

    From 3.9 on the logger kafka.request.logger writes deprecated requests at INFO, and every request at DEBUG. Older
    releases write only at DEBUG (RequestChannel.updateRequestMetrics, RequestConvertToJson).
    """
    return tuple(dict.fromkeys(_requests(lines)))


def _requests(lines: Iterable[str]) -> Iterator[LoggedRequest]:
    for event in parse_events(tuple(lines)):
        if event.logger != _REQUEST_LOGGER or not event.text.startswith(_REQUEST):
            continue
        try:
            logged = parse_json(event.text.removeprefix(_REQUEST))
            header, client = logged["requestHeader"], logged.get("clientInformation", {})
            connection = _CONNECTION.fullmatch(logged["connection"])
            yield LoggedRequest(
                api=str(header["requestApiKeyName"]),
                version=int(header["requestApiVersion"]),
                client_name=str(client.get("softwareName", UNKNOWN_CLIENT)),
                client_version=str(client.get("softwareVersion", UNKNOWN_CLIENT)),
                client_id=str(header.get("clientId") or ""),
                address=connection["address"] if connection else logged["connection"],
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            continue  # a line that the log has cut off
