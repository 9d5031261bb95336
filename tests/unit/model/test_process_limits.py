"""What the next process of a unit cannot do, and the one that runs can."""

from __future__ import annotations

import pytest

from kafka_rollout.model.process_limits import find_differences

# As Linux 6.1 and systemd 252 show them.
STATUS = {"NoNewPrivs": "0", "Seccomp": "0", "CapPrm": "0000000000000000", "CapAmb": "0000000000000000"}
LIMITS = [
    "Limit                     Soft Limit           Hard Limit           Units     ",
    "Max cpu time              unlimited            unlimited            seconds   ",
    "Max address space         unlimited            unlimited            bytes     ",
    "Max open files            100000               100000               files     ",
    "Max processes             63432                63432                processes ",
]
SHOWN = {
    "NoNewPrivileges": "no",
    "MemoryDenyWriteExecute": "no",
    "RestrictNamespaces": "no",
    "SystemCallFilter": "",
    "AmbientCapabilities": "",
    "CapabilityBoundingSet": "cap_chown cap_net_bind_service cap_sys_admin",
    "LimitNOFILE": "524288",
    "LimitNOFILESoft": "1024",
    "LimitNPROC": "63432",
    "LimitNPROCSoft": "63432",
    "LimitAS": "infinity",
    "LimitASSoft": "infinity",
}


@pytest.mark.parametrize(
    ("status", "shown", "expected"),
    [
        ({}, {}, []),
        ({}, {"MemoryDenyWriteExecute": "yes"}, ["MemoryDenyWriteExecute=yes keeps", "MemoryDenyWriteExecute would"]),
        ({"Seccomp": "2"}, {"MemoryDenyWriteExecute": "yes"}, ["MemoryDenyWriteExecute=yes keeps"]),
        ({}, {"SystemCallFilter": "@system-service"}, ["SystemCallFilter would filter"]),
        ({"Seccomp": "2"}, {"SystemCallFilter": "@system-service"}, []),
        ({}, {"NoNewPrivileges": "yes"}, ["NoNewPrivileges=yes"]),
        ({"NoNewPrivs": "1"}, {"NoNewPrivileges": "yes"}, []),
        ({}, {"LimitNOFILE": "1024"}, ["LimitNOFILE= becomes 1024 (hard limit), and the process has 100000"]),
        ({}, {"LimitAS": "1000000000", "LimitASSoft": "1000000000"}, ["LimitAS= becomes", "LimitAS= becomes"]),
        ({}, {"LimitNPROCSoft": "100"}, ["LimitNPROC= becomes 100 (soft limit)"]),
        ({"CapAmb": "0000000000000400"}, {}, ["AmbientCapabilities= gives no CAP_NET_BIND_SERVICE"]),
        ({"CapAmb": "0000000000000400"}, {"AmbientCapabilities": "cap_net_bind_service"}, []),
        ({"CapPrm": "0000000000000401"}, {"CapabilityBoundingSet": "cap_chown"}, ["CapabilityBoundingSet= gives no"]),
    ],
)
def test_only_what_the_next_process_loses_is_named(
    status: dict[str, str], shown: dict[str, str], expected: list[str]
) -> None:
    found = find_differences({**STATUS, **status}, LIMITS, {**SHOWN, **shown}, ())
    assert len(found) == len(expected)
    assert all(one.startswith(begin) for one, begin in zip(found, expected, strict=True))


def test_what_a_script_of_the_start_changes_itself_is_not_compared() -> None:
    lost = {**SHOWN, "LimitNOFILE": "1024"}
    assert find_differences(STATUS, LIMITS, lost, ["ulimit -n 100000"]) == ()
    assert len(find_differences(STATUS, LIMITS, lost, ["umask 022"])) == 1
    rights = {**STATUS, "CapAmb": "0000000000000400"}
    assert find_differences(rights, LIMITS, SHOWN, ["exec /usr/bin/setpriv --ambient-caps +net_bind_service x"]) == ()
