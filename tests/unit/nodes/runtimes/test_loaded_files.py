"""Files that systemd would read of a unit and has not loaded, with what `systemctl` of systemd 252 prints."""

from __future__ import annotations

import pytest

from kafka_rollout.model.host_state import HostState
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes.test_service import NODE, runtime_on

LIB, ETC, OPT = "/lib/systemd/system", "/etc/systemd/system", "/opt/units"
UNIT = "# {}/kafka.service\n[Unit]\n# of the package\nDescription=Kafka\n\n[Service]\nUser=kafka\nExecStart=/x\n"
DROP_IN = "\n# {}\n[Service]\nKillMode=none\n"
MASKED = "# Unit kafka.service is masked.\n"
UNKNOWN = "which files systemd would read of kafka.service (`systemctl cat`)"


def host(loaded: str, found: str, *more: str) -> HostState:
    """`loaded`, `found`: what `systemctl cat` prints; `more`: other lines of the host."""
    lines = ["Loaded=known", *(f"loaded {line}" for line in loaded.splitlines())]
    lines += ["Found=known", *(f"found {line}" for line in found.splitlines()), "Names=kafka.service", *more]
    return runtime_on(FakeHost(unit_files="\n".join(lines))).host(NODE, [Release(4, 3, 1)])


def reload_of(loaded: str, found: str, *more: str) -> str:
    state = host(loaded, found, *more)
    assert state.unknown == ()
    return state.needs_reload


@pytest.mark.parametrize(
    "drop_in",
    [
        f"{ETC}/kafka.service.d/heap.conf",
        f"{ETC}/service.d/all.conf",
        "/run/systemd/system/kafka.service.d/x.conf",
        f"{ETC}/broker.service.d/of-alias.conf",
    ],
)
def test_a_drop_in_that_systemd_has_not_loaded_is_named(drop_in: str) -> None:
    unit = UNIT.format(LIB)
    assert reload_of(unit, unit + DROP_IN.format(drop_in)) == f"systemd would read {drop_in}"
    assert reload_of(unit + DROP_IN.format(drop_in), unit) == f"systemd would not read the same files: {drop_in}"


def test_a_file_that_precedes_the_loaded_one_is_named() -> None:
    says = f"systemd would read {ETC}/kafka.service in place of {LIB}/kafka.service"
    assert reload_of(UNIT.format(LIB), UNIT.format(ETC) + "KillMode=none\n") == says
    assert reload_of(UNIT.format(LIB), f"# {ETC}/kafka.service\n") == says  # a link to /dev/null
    empty = f"# {ETC}/kafka.service\n"
    assert reload_of(empty, empty) == "systemd would find no setting in its files"  # as the link, in its place


def test_files_with_the_same_settings_are_the_same() -> None:
    unit, drop_in = UNIT.format(LIB), DROP_IN.format(f"{ETC}/kafka.service.d/heap.conf")
    assert reload_of(unit, unit) == ""
    assert reload_of(unit + drop_in, unit.replace("# of the package\n", "; x\n\n") + drop_in) == ""
    assert reload_of(UNIT.format(OPT), UNIT.format(ETC)) == ""  # systemd 239 shows the end of a link


def test_drop_ins_in_another_order_are_another_unit() -> None:
    parts = [DROP_IN.format(f"{ETC}/kafka.service.d/a.conf"), "\n# /b.conf\n[Service]\nKillMode=process\n"]
    before, after = ["".join([UNIT.format(LIB), *order]) for order in (parts, parts[::-1])]
    assert reload_of(before, after) == "systemd would not read the same files"


def test_a_unit_that_is_loaded_as_masked_has_nothing_to_compare() -> None:
    assert reload_of(MASKED, f"# {ETC}/kafka.service\n{DROP_IN}") == ""
    assert reload_of(MASKED, UNIT.format(LIB)) == ""


def test_a_file_that_was_replaced_by_an_older_one_after_the_load_is_named() -> None:
    unit, path = UNIT.format(LIB), f"{LIB}/kafka.service"
    times = [f"time 99 {path}", f"time 101 {path}", f"time 101 {path}"]
    changed = f"{path} was changed or replaced after systemd had read all units"
    assert reload_of(unit, unit, "Loaded at=100", *times) == changed
    assert reload_of(unit, unit, "Loaded at=101", *times) == ""
    assert reload_of(unit, unit, *times) == ""  # systemd before 248 does not show when


@pytest.mark.parametrize(
    "printed",
    [
        "Found=known\n",
        "Loaded=known\n",
        f"Loaded=known\nFound=known\nloaded [Unit]\nfound [Unit]\nunread {ETC}\n",
        f"Loaded=known\nFound=known\nunread {ETC}/kafka.service.d\n",
        f"Loaded=known\nFound=known\nunread {ETC}/service.d\n",
        f"Loaded=known\nFound=known\nNames=kafka.service a-b@1.service\nunread {ETC}/a-b@.service.d\n",
        f"Loaded=known\nFound=known\nNames=kafka.service a-b@1.service\nunread {ETC}/a-@.service.d\n",
        f"Loaded=known\nFound=known\nNames=kafka.service a-b.service\nunread {ETC}/a-.service.d\n",
    ],
)
def test_what_the_host_does_not_show_is_unknown(printed: str) -> None:
    state = runtime_on(FakeHost(unit_files=printed)).host(NODE, [Release(4, 3, 1)])
    assert (state.needs_reload, state.unknown) == ("", (UNKNOWN,))


def test_a_closed_folder_of_another_unit_hides_nothing() -> None:
    unit = UNIT.format(LIB)
    assert reload_of(unit, unit, f"unread {ETC}/vault.service.d", f"unread {ETC}/kafka-exporter.service.d") == ""


def test_a_unit_whose_files_are_gone_is_known_by_systemd_itself() -> None:
    state = runtime_on(FakeHost(needs_reload="yes", unit_files="Found=known\n")).host(NODE, [Release(4, 3, 1)])
    assert (state.needs_reload, state.unknown) == ("NeedDaemonReload=yes", ())
