"""What the checks of a host ask systemd about a unit is what UNIT-SETTINGS-UNKNOWN leaves out: one of both alone would
name a setting that a check reads, or hide one that none reads."""

from __future__ import annotations

import re

import pytest

from kafka_rollout.model.topology import NodeSpec
from kafka_rollout.model.unit_settings import find_unknown, parse_settings
from kafka_rollout.releases.facts import Release
from tests.fakes.host import FakeHost
from tests.unit.nodes.runtimes import test_packages, test_service

# Of the unit as it is now, or of other units: no file of the unit sets them.
_NO_SETTINGS = frozenset(
    {
        *("Id", "Names", "LoadState", "ActiveState", "SubState", "Result", "ConditionResult"),
        *("MainPID", "ExecMainPID", "NRestarts"),
        *("FragmentPath", "SourcePath", "DropInPaths", "UnitPath", "UnitFileState", "UnitsLoadTimestamp", "Transient"),
        *("NeedDaemonReload", "CanStart", "ControlGroup", "RequiredBy", "RequisiteOf", "BoundBy", "ConsistsOf"),
        "UpheldBy",
    }
)
_OTHER_NAMES = {"EnvironmentFiles": "EnvironmentFile", "TimeoutStopUSec": "TimeoutStopSec"}


@pytest.mark.parametrize("bed", [test_service, test_packages])
def test_each_setting_that_a_check_asks_for_is_known(bed: object) -> None:
    lines = list[str]()
    package = ["4.2.1"] if bed is test_packages else None
    host = FakeHost(package=package, on_command=lines.append)
    node: NodeSpec = bed.NODE  # type: ignore[attr-defined]
    bed.runtime_on(host).host(node, [Release(4, 3, 1)])  # type: ignore[attr-defined]
    asked = {
        name for line in lines for names in re.findall(r"--property=(\w+(?:,\w+)*)", line) for name in names.split(",")
    }
    own = {
        _OTHER_NAMES.get(name, name).removesuffix("Soft")
        for name in asked
        if name not in _NO_SETTINGS and "Timestamp" not in name
    }
    assert {"InaccessiblePaths", "ExecStart", "TimeoutStopSec"} <= own
    section = "\n".join(f"{name}=/x" for name in sorted(own))
    assert find_unknown(parse_settings(f"[Service]\n{section}\n")) == ()
