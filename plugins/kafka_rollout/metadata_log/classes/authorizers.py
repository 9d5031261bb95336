"""Kafka's own StandardAuthorizer of one release decides questions about ACLs.

Questions with the same address and principal are one call of Java, so 10,000 ACLs need some seconds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kafka_rollout.model.acls import AUTHORIZER_SETTINGS, STANDARD_AUTHORIZER, Acl, AclAnswers, AclQuestion, Action
from kafka_rollout.releases.jvm.jvm import Jvm

_COMMON = "org.apache.kafka.common"
_ALLOWED, _DENIED = "ALLOWED", "DENIED"
_MONITORABLE = f"{_COMMON}.metrics.Monitorable"
_PLUGIN_METRICS = f"{_COMMON}.metrics.internals.PluginMetricsImpl"
_ENUMS = {
    "resource_type": f"{_COMMON}.resource.ResourceType",
    "pattern_type": f"{_COMMON}.resource.PatternType",
    "operation": f"{_COMMON}.acl.AclOperation",
    "permission": f"{_COMMON}.acl.AclPermissionType",
}


class Authorizer:
    """StandardAuthorizer with these ACLs. `settings`: of a node; only those of the authorizer are used."""

    def __init__(self, jvm: Jvm, acls: Sequence[Acl], settings: Mapping[str, str]) -> None:
        self._jvm = jvm
        self._enums: dict[tuple[str, int], Any] = {}
        self._authorizer = jvm.instance(STANDARD_AUTHORIZER)
        configs = jvm.packages.java.util.HashMap()
        for name in AUTHORIZER_SETTINGS:
            if name in settings:
                configs.put(name, settings[name])
        self._authorizer.configure(configs)
        self._add_metrics()
        loaded = jvm.packages.java.util.HashMap()
        new, uuid = jvm.static("org.apache.kafka.metadata.authorizer.StandardAcl"), jvm.static(f"{_COMMON}.Uuid")
        for number, acl in enumerate(acls):
            values = (self._enum("resource_type", acl.resource_type), acl.resource_name)
            pattern, operation = self._enum("pattern_type", acl.pattern_type), self._enum("operation", acl.operation)
            permission = self._enum("permission", acl.permission)
            loaded.put(uuid(1, number), new(*values, pattern, acl.principal, acl.host, operation, permission))
        self._authorizer.loadSnapshot(loaded)
        self._authorizer.completeInitialLoad()

    def answers(self, acls: Sequence[Acl], questions: Sequence[AclQuestion]) -> AclAnswers:
        """Decide the questions. `acls`: those that the release may not know."""
        return AclAnswers(
            unknown=tuple(acl for acl in acls if not self._knows(acl)),
            allowed=tuple(self._answer(question) for question in questions),
        )

    def _add_metrics(self) -> None:
        """From 4.1 on (KIP-877) it counts each decision, and fails without metrics."""
        monitorable = self._jvm.find_class(_MONITORABLE)
        if monitorable is not None and monitorable.isInstance(self._authorizer):
            metrics, tags = self._jvm.static(f"{_COMMON}.metrics.Metrics")(), self._jvm.packages.java.util.HashMap()
            self._authorizer.withPluginMetrics(self._jvm.static(_PLUGIN_METRICS)(metrics, tags))

    def _answer(self, question: AclQuestion) -> tuple[tuple[bool | None, ...], ...]:
        known = [action for action in question.actions if self._is_known("operation", action.operation)]
        actions = self._jvm.packages.java.util.ArrayList()
        for action in known:
            actions.add(self._action(action))
        found = []
        for address in question.addresses:
            # One text for all results: reading them one by one would be a call of Java for each.
            text = str(self._authorizer.authorize(self._context(question.principal, address), actions).toString())
            results = text.strip("[]").split(", ") if known else []
            if len(results) != len(known) or not {_ALLOWED, _DENIED}.issuperset(results):
                raise AssertionError(f"StandardAuthorizer.authorize returned {text[:100]}")
            by_action = dict(zip(known, results, strict=True))
            found.append(
                tuple(by_action[action] == _ALLOWED if action in by_action else None for action in question.actions)
            )
        return tuple(found)

    def _action(self, action: Action) -> Any:
        literal = self._enum("pattern_type", 3)
        pattern = self._jvm.static(f"{_COMMON}.resource.ResourcePattern")(
            self._enum("resource_type", action.resource_type), action.resource_name, literal
        )
        new = self._jvm.static("org.apache.kafka.server.authorizer.Action")
        return new(self._enum("operation", action.operation), pattern, 1, False, False)

    def _context(self, principal: str, address: str) -> Any:
        """A RequestContext: StandardAuthorizer reads principal and address of it."""
        packages, security = self._jvm.packages, f"{_COMMON}.security.auth"
        kind, _, name = principal.partition(":")
        protocol = self._jvm.static(f"{security}.SecurityProtocol").PLAINTEXT
        return self._jvm.static(f"{_COMMON}.requests.RequestContext")(
            None,
            "kafka-rollout",
            packages.java.net.InetAddress.getByName(address),
            self._jvm.static(f"{security}.KafkaPrincipal")(kind, name),
            self._jvm.static(f"{_COMMON}.network.ListenerName")("PLAINTEXT"),
            protocol,
            self._jvm.static(f"{_COMMON}.network.ClientInformation").EMPTY,
            False,
        )

    def _knows(self, acl: Acl) -> bool:
        return all(self._is_known(kind, getattr(acl, kind)) for kind in _ENUMS)

    def _is_known(self, kind: str, code: int) -> bool:
        return not bool(self._enum(kind, code).isUnknown())

    def _enum(self, kind: str, code: int) -> Any:
        if (kind, code) not in self._enums:
            self._enums[kind, code] = self._jvm.static(_ENUMS[kind]).fromCode(code)
        return self._enums[kind, code]


def decide(jvm: Jvm, acls: Sequence[Acl], questions: Sequence[AclQuestion], settings: Mapping[str, str]) -> AclAnswers:
    """Return the answers of the release of `jvm`."""
    return Authorizer(jvm, acls, settings).answers(acls, questions)
