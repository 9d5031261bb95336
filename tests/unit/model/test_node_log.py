"""What a log proves, against texts that are made from the grammar by which the log is read."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kafka_rollout.base import log_lines
from kafka_rollout.base.internal_topics import GROUPS_TOPIC, TRANSACTIONS_TOPIC
from kafka_rollout.base.log_lines import LogLayout, parse_events
from kafka_rollout.gates.coordinators import CoordinatorAnswers, coordinators_condition, ids_for
from kafka_rollout.gates.gate import BeforeStop
from kafka_rollout.model import node_log
from kafka_rollout.model.node_log import LogPart, SeenLog, find_logged_requests, read_part
from tests.unit.builders import partition

LOST = f"{GROUPS_TOPIC}-0"
CLASSES = {
    "GroupMetadataManager": "kafka.coordinator.group.GroupMetadataManager",
    "TransactionStateManager": "kafka.coordinator.transaction.TransactionStateManager",
    "CoordinatorRuntime": "org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime",
}
DATES = st.from_regex(re.compile(log_lines._DATE, re.ASCII), fullmatch=True)
WORDS = st.sampled_from(["x", "", "orders", " in state Empty", "(a.B)", "[GroupCoordinator 1]: "])
FORMS = {
    LogLayout.KAFKA: "[{0}] {1} {2} ({3})",
    LogLayout.PLAIN: "{0} {1} {2} ({3})",
    LogLayout.THREAD: "[{0}] {1} {2} ({3}) [main]",
    LogLayout.PLAIN_THREAD: "{0} {1} {2} ({3}) [main]",
}
MANAGER = node_log.REMOTE_LOG_MANAGER
LIFECYCLE = "kafka.server.BrokerLifecycleManager"


SIGNAL_HANDLER = min(node_log._SIGNAL_HANDLERS, key=len)


def of_grammar(expressions: dict[str, re.Pattern[str]]) -> st.SearchStrategy[tuple[str, str]]:
    """(message, logger) of each class, as the expressions of the parser describe them; often about one partition."""
    each = [
        st.from_regex(re.compile(expression.pattern, re.ASCII), fullmatch=True).map(
            lambda text, name=name: (re.sub(r"__\w+-\d+", LOST, text).replace("\n", " "), CLASSES[name])
        )
        for name, expression in expressions.items()
    ]
    return st.one_of(each)


SUCCESSES = st.one_of(
    of_grammar(node_log._FINISHED),
    st.just(("Registered signal handlers for TERM, INT, HUP", SIGNAL_HANDLER)),
    st.just((node_log._INITIALISED, MANAGER)),
    st.just(("Successfully registered broker 1 with broker epoch 9", LIFECYCLE)),
)


PREFIXES = st.sampled_from(["", "[GroupMetadataManager brokerId=1] ", "[x]: "])


@st.composite
def events(draw: st.DrawFn, messages: st.SearchStrategy[tuple[str, str]] = SUCCESSES) -> str:
    """One line of a log in a layout that is read."""
    message, logger = draw(messages)
    prefix, form = draw(PREFIXES), draw(st.sampled_from(list(FORMS.values())))
    return form.format(draw(DATES), "INFO", prefix + message, logger)


# A strategy that is made for each text would translate its regular expressions again.
EVENTS_AND_WORDS = st.lists(st.one_of(events(), WORDS), max_size=6)
FIRST_LINES = st.one_of(WORDS, st.just("x (kafka.a.B)"), st.just("x\n (kafka.a.B)"))
LAST_LINES = st.one_of(WORDS, DATES.map("[{}] INFO y".format), DATES.map("{} INFO y".format))


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A text of a client: words and whole lines; its first and its last line complete a line of the log, or do not."""
    first, last = draw(FIRST_LINES), draw(LAST_LINES)
    return "\n".join([first, *draw(EVENTS_AND_WORDS), last])


TEXTS = st.lists(texts(), max_size=4)


@st.composite
def logs(draw: st.DrawFn) -> tuple[str, ...]:
    """Lines of a broker that writes texts of clients into its messages."""
    lines = [
        f"[2026-11-28 08:00:00,000] INFO [GroupCoordinator 1]: member joins group {text} in state Empty "
        "(kafka.coordinator.group.GroupCoordinator)"
        for text in draw(TEXTS)
    ]
    return tuple("\n".join(lines).split("\n")) if lines else ()


STARTED = f"[2026-11-28 07:00:00,000] INFO Registered signal handlers for TERM, INT, HUP ({SIGNAL_HANDLER})"
FAILED = (
    "[2026-11-28 07:00:01,000] ERROR [GroupMetadataManager brokerId=1] Error loading offsets from "
    f"{LOST} (kafka.coordinator.group.GroupMetadataManager)"
)
REMOTE = f"[2026-11-28 07:00:01,000] ERROR Encountered error while initializing topic-based RLMM resources ({MANAGER})"


def read(*parts: tuple[str, ...], problem: str = "") -> SeenLog:
    """The parts of the log of one process. `problem`: before the last one."""
    seen = None
    for number, lines in enumerate(parts):
        gap = problem if number and number == len(parts) - 1 else ""
        seen = read_part(seen, LogPart(pid=1, started_at=1.0, lines=lines, is_first=number == 0, problem=gap))
    assert seen is not None
    return seen


def is_met(seen: SeenLog) -> bool:
    """Whether the gate passes with one group gone from LOST."""
    before = BeforeStop(
        node_id=1,
        release="3.9.1",
        at=0.0,
        in_isr=frozenset(),
        leads=frozenset(),
        was_active_controller=False,
        groups=frozenset(ids_for({0}, 1)),
    )
    partitions = (partition(GROUPS_TOPIC, 0, [1]), partition(TRANSACTIONS_TOPIC, 0, [1]))
    by_partition = dict.fromkeys((p.name for p in partitions), "NONE")
    answers = CoordinatorAnswers(by_partition=by_partition, groups=frozenset(), transactional_ids=frozenset())
    return coordinators_condition(partitions, 1, answers, before, seen).is_met


@given(logs(), logs(), logs())
@settings(max_examples=60, deadline=None)
def test_no_text_ends_an_error(before: tuple[str, ...], after: tuple[str, ...], later: tuple[str, ...]) -> None:
    seen = read((STARTED, *before, FAILED, REMOTE, *after), later)
    assert LOST in seen.failed
    assert seen.remote_errors
    assert not is_met(seen)


@given(logs(), logs())
@settings(max_examples=40, deadline=None)
def test_no_text_replaces_what_a_gap_hides(first: tuple[str, ...], later: tuple[str, ...]) -> None:
    """The error is in the lines that nobody has read."""
    known = read((STARTED, *first))
    seen = read((STARTED, *first), later, problem="was rotated before it was read")
    assert seen.loaded == known.loaded
    assert seen.has_initialised == known.has_initialised


@given(logs(), st.sampled_from(["{}", "INFO started", STARTED.replace("] INFO ", "] INFO [main] "), ""]))
@settings(max_examples=40, deadline=None)
def test_no_text_makes_a_layout_known(forged: tuple[str, ...], line: str) -> None:
    """A text comes after the first lines of a process, which writes them before it opens a port."""
    seen = read((*[line] * node_log._FIRST_LINES, *forged))
    assert seen.layout is None
    assert seen.loaded == ()
    assert not is_met(seen)
    assert not is_met(read((*[line] * (node_log._FIRST_LINES - 1), line), forged)), "in parts, too"


def test_the_settings_that_a_plugin_logs_at_the_start_do_not_hide_it() -> None:
    """A metrics reporter with a producer logs its values before Kafka registers signal handlers, a line for each."""
    values = (
        STARTED.replace("Registered signal handlers for TERM, INT, HUP", "ProducerConfig values: "),
        *[f"\tsetting.{number} = null" for number in range(2 * node_log._FIRST_LINES)],
        "",
    )
    assert read((*values, STARTED)).layout is LogLayout.KAFKA
    assert read(values[:50], values[50:], (STARTED,)).layout is LogLayout.KAFKA, "in parts, too"


@given(events())
@settings(deadline=None)
def test_the_events_of_these_texts_are_those_of_the_parser(line: str) -> None:
    """Else the properties above would be about texts that are read as nothing."""
    (event,) = parse_events([line])
    assert event.level == "INFO"
    assert event.is_of_kafka


@pytest.mark.parametrize("package", ["org.apache.kafka.common.utils", "org.apache.kafka.common.utils.internals"])
def test_the_start_is_known_in_each_package_that_the_class_has_had(package: str) -> None:
    line = (
        f"[2026-11-23 02:00:01,000] INFO Registered signal handlers for TERM, INT, HUP ({package}.LoggingSignalHandler)"
    )
    assert read((line,)).layout is not None
    assert read((line.replace(package, f"com.acme.{package}"),)).layout is None


def test_the_same_lines_of_the_broker_itself_are_evidence() -> None:
    finished = FAILED.replace("ERROR", "INFO").replace(
        f"Error loading offsets from {LOST}",
        f"Finished loading offsets and group metadata from {LOST} in 3 milliseconds for epoch 1",
    )
    assert is_met(read((STARTED, finished)))


def test_a_request_that_a_client_writes_is_only_what_the_log_says() -> None:
    """The finding names an address as a hint, and counters decide about the request itself."""
    forged = (
        '[2026-11-23 09:31:02,871] INFO Completed request:{"requestHeader":{"requestApiVersion":0,"clientId":"pay",'
        '"requestApiKeyName":"FETCH"},"connection":"1.1.1.1:9092-10.9.8.7:51234-0"} (kafka.request.logger)'
    )
    (found,) = find_logged_requests([forged])
    assert found.address == "10.9.8.7"


JBOD = (
    "[2026-11-28 07:00:01,000] ERROR Encountered metadata publishing fault: Broker configuration does not support the "
    f"cluster MetadataVersion ({node_log._FAULTS})"
)
CAUSE = (
    "java.lang.IllegalArgumentException: {}Multiple log directories (aka JBOD) are not supported in the current "
    "MetadataVersion 3.6-IV2. Need 3.7-IV2 or higher"
)


@pytest.mark.parametrize("prefix", ["requirement failed: ", ""], ids=["scala's require", "4.2 and later"])
def test_several_log_directories_that_a_level_does_not_support_are_a_fault_with_the_level(prefix: str) -> None:
    cause = CAUSE.format(prefix)
    assert read((STARTED, JBOD, cause, "\tat scala.Predef$.require(Predef.scala:337)")).faults == (
        "log directories at metadata.version 3.6-IV2",
    )
    assert read((STARTED, JBOD), (cause,)).faults == ("log directories at metadata.version 3.6-IV2",), "in two parts"
    error = "java.lang.IllegalStateException: no"
    assert read((STARTED, FAILED), (error,)).failed[LOST].endswith(error)


def test_settings_of_the_broker_itself_are_a_fault_for_each_role_of_the_process() -> None:
    """A combined node has a DynamicConfigPublisher for each role, with equal lines."""
    fault = JBOD.replace(
        "Broker configuration does not support the cluster MetadataVersion",
        "Error updating node with new configuration: log.segment.bytes -> 30000 in MetadataDelta up to 22",
    )
    assert read((STARTED, fault)).faults == (node_log.BROKER_SETTINGS[0],)
    assert read((STARTED, fault), (fault,)).faults == node_log.BROKER_SETTINGS
    assert read((STARTED, *[fault] * 5)).faults == node_log.BROKER_SETTINGS


@pytest.mark.parametrize(
    "lines",
    [
        (JBOD,),
        (JBOD, "java.lang.IllegalArgumentException: requirement failed: another"),
        (JBOD, STARTED, CAUSE.format("")),
        (STARTED, CAUSE.format("")),
        (JBOD.replace("publishing", "loading"), CAUSE.format("")),
        (JBOD.replace(node_log._FAULTS, "kafka.server.Other"), CAUSE.format("")),
    ],
    ids=["no cause", "another cause", "a cause elsewhere", "no fault", "another fault", "another class"],
)
def test_another_fault_is_not_that_of_log_directories(lines: tuple[str, ...]) -> None:
    assert read((STARTED, *lines), (STARTED,)).faults == ()
