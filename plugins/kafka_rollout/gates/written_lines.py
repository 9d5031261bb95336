"""The condition that a started node uses the lines that the run has changed in its file.

The run changes the file while the node is stopped. The start can write the file again, from a template in ExecStartPre=
or in a script, and so can software that manages the host. Then the node runs, and a planned line is not in effect.
"""

from __future__ import annotations

from collections.abc import Mapping

from kafka_rollout.base.wording import few
from kafka_rollout.gates.gate import GateCondition, none_left
from kafka_rollout.model.config_values import same_value
from kafka_rollout.model.configs import HIDDEN, ConfigSource, Setting, is_reference
from kafka_rollout.model.node_log import hide_credentials
from kafka_rollout.model.topology import NodeSpec

CONDITION = "planned lines in effect"
_READ = (ConfigSource.FILE, ConfigSource.DEFAULT)  # the others count more than the file


def written_lines_condition(
    node: NodeSpec, lines: Mapping[str, str | None], file: Mapping[str, str], in_use: Mapping[str, Setting] | None
) -> GateCondition:
    """Compare the file, then what the process reports.

    `lines`: what the run has written (None: removed). `file`: as it is now. `in_use`: None if the node does not report
    it. A removed line is looked for in the file only, because other settings can set the same value.
    """
    lost = [_line(key, value) for key, value in sorted(lines.items()) if not same_value(file.get(key), value)]
    unmet = (
        f"the file of node {node.node_id} does not have what the run has written: {few(lost)}. The start of the node, "
        "or software that manages the host, has written the file since. Correct these lines in the template or the "
        "software that writes it, then retry the node"
    )
    if not lost:
        wanted = [(key, value) for key, value in sorted(lines.items()) if value is not None]
        lost = [_line(key, value) for key, value in wanted if _is_other(value, (in_use or {}).get(key))]
        unmet = (
            f"the process of node {node.node_id} does not use {few(lost)}, which its file has: the file was written "
            "again after the process had read it. Find out what writes it, then retry the node"
        )
    met = few([_line(key, value) for key, value in sorted(lines.items())])
    return none_left(CONDITION, lost, unmet=unmet, met=f"{met}: {'in the file' if in_use is None else 'in use'}")


def _is_other(line: str, setting: Setting | None) -> bool:
    """Return whether the process has another value. A setting that its release does not know is not reported."""
    if setting is None or setting.value in (None, HIDDEN) or setting.source not in _READ or is_reference(line):
        return False
    return not same_value(line, setting.value, setting.type)


def _line(key: str, value: str | None) -> str:
    return f"no {key}" if value is None else hide_credentials(f"{key}={value}")
