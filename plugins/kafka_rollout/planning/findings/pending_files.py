"""Lines of the nodes' files that the running processes have not read: a restart brings them into effect."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping

from kafka_rollout.base.findings import INFO, Check, CheckOf, Examined, Finding, FindingCode, Need
from kafka_rollout.base.wording import nodes
from kafka_rollout.model.effective_configs import HIDDEN, ConfigSource, EffectiveConfigs, Setting

FILE_NOT_READ = FindingCode(
    "FILE-NOT-READ",
    INFO,
    "A line of a node's file differs from the value that its process uses. The restart brings it into effect.",
    "Approve it with the plan, or correct the file first.",
)
PENDING_CHECK = Check(
    "pending-configuration",
    "Configuration that the restart brings into effect",
    "restart.md#what-the-restart-brings-into-effect",
    (FILE_NOT_READ,),
    of=(CheckOf.RESTART,),
    needs=(Need.RESPONSES, Need.CONFIGS),
    examines=Examined.CONFIGS,
)
_DERIVED = frozenset({"broker.id"})  # Kafka shows node.id under this name too (KafkaConfig)
_DYNAMIC = frozenset({ConfigSource.NODE, ConfigSource.ALL_BROKERS})


def pending_findings(
    restarted: Collection[int], configs: Mapping[int, Mapping[str, str]], effective: EffectiveConfigs
) -> Iterator[Finding]:
    """Yield one finding for each change, with the nodes of which it is true.

    `configs`: node id → lines of its file. `effective`: what each broker uses, from DescribeConfigs; a node that is a
    controller alone is not in it. Secrets and values of config providers cannot be compared. A dynamic value counts
    more than the file, so its line changes nothing. DescribeConfigs does not show whether a setting without a value is
    a secret, so no line of such a setting is quoted.
    """
    found: defaultdict[tuple[str, str, str], list[int]] = defaultdict(list)
    for node_id in sorted(restarted):
        if str(node_id) not in effective.brokers.deviations or node_id not in configs:
            continue
        used = effective.brokers.settings(str(node_id))
        for name, before, after in _changes(configs[node_id], used):
            found[name, before, after].append(node_id)
    for (name, before, after), node_ids in sorted(found.items()):
        yield FILE_NOT_READ.found(
            f"setting {name}",
            f"{name} of {nodes(node_ids)} is {before} now, and {after} after the restart.",
        )


def _changes(lines: Mapping[str, str], used: Mapping[str, Setting]) -> Iterator[tuple[str, str, str]]:
    for name, setting in used.items():
        line = lines.get(name)
        if setting.value == HIDDEN or setting.source in _DYNAMIC or (line is not None and "${" in line):
            continue
        if line is not None and _plain(line) != _plain(setting.value or ""):
            yield name, _shown(setting.value), "as in the file" if setting.value is None else line
        elif line is None and setting.source is ConfigSource.FILE and name not in _DERIVED:
            yield name, _shown(setting.value), "the default"


def _plain(value: str) -> str:
    """A value as Kafka's parser leaves it: without spaces around the items of a list, with booleans in lower case."""
    value = ",".join(part.strip() for part in value.split(","))
    return value.lower() if value.lower() in {"true", "false"} else value


def _shown(value: str | None) -> str:
    return "empty" if value in {None, ""} else str(value)
