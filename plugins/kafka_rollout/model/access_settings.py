"""Settings of a node that decide who may do what: who a client is, which proof of it is accepted, and what it may do.

Such a line takes effect when the node starts, and Kafka accepts one that opens the cluster to everybody.
Sources: SslConfigs, SaslConfigs, BrokerSecurityConfigs, SocketServerConfigs, StandardAuthorizer.
`listener.name.<name>.` overrides a setting of one listener (KIP-103), `listener.name.<name>.<mechanism>.` one of SASL
(KIP-226).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from kafka_rollout.model.acls import AUTHORIZER, AUTHORIZER_SETTINGS
from kafka_rollout.model.listeners import base_name

EARLY_START = "early.start.listeners"
ACCESS = frozenset(
    {
        AUTHORIZER,
        *AUTHORIZER_SETTINGS,
        EARLY_START,
        "alter.config.policy.class.name",
        "alter.config.policy.kraft.compatibility.enable",
        "connections.max.reauth.ms",
        "control.plane.listener.name",
        "create.topic.policy.class.name",
        "delegation.token.expiry.time.ms",
        "delegation.token.master.key",
        "delegation.token.max.lifetime.ms",
        "delegation.token.secret.key",
        "inter.broker.listener.name",
        "listener.security.protocol.map",
        "principal.builder.class",
        "sasl.client.callback.handler.class",
        "sasl.enabled.mechanisms",
        "sasl.jaas.config",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.login.callback.handler.class",
        "sasl.login.class",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.oauthbearer.allow.unverified.audience",
        "sasl.oauthbearer.allow.unverified.issuer",
        "sasl.oauthbearer.clock.skew.seconds",
        "sasl.oauthbearer.expected.audience",
        "sasl.oauthbearer.expected.issuer",
        "sasl.oauthbearer.jwks.endpoint.url",
        "sasl.oauthbearer.jwt.validator.class",
        "sasl.oauthbearer.scope.claim.name",
        "sasl.oauthbearer.sub.claim.name",
        "sasl.server.callback.handler.class",
        "security.inter.broker.protocol",
        "security.providers",
        "ssl.client.auth",
        "ssl.endpoint.identification.algorithm",
        "ssl.engine.factory.class",
        "ssl.principal.mapping.rules",
        "ssl.provider",
        "ssl.trustmanager.algorithm",
        "ssl.truststore.certificates",
        "ssl.truststore.location",
        "ssl.truststore.type",
    }
)
"""Names without prefixes."""
NOT_ACCESS: Mapping[str, str] = {
    r"advertised\.listeners|controller\.listener\.names|listeners": "How others reach the node: its membership.",
    r"connection\.failed\.authentication\.delay\.ms": "When a client that was refused gets its answer.",
    r"delegation\.token\.expiry\.check\.interval\.ms": "When tokens that have ended are deleted.",
    r"password\.encoder\..+": "How Kafka with ZooKeeper encrypts the secrets that it stores.",
    r"remote\.log\.metadata\.manager\.listener\.name": "Through which listener the node is its own client.",
    r"sasl\.kerberos\.(kinit\.cmd|min\.time\.before\.relogin|ticket\..+)": "When the node logs in again.",
    r"sasl\.kerberos\.service\.name": "The service that the node's own logins ask for.",
    r"sasl\.login\.(connect|read|refresh|retry)\..+": "When the node logs in again.",
    r"sasl\.oauthbearer\.(assertion\..+|client\.credentials\..+|jwt\.retriever\.class|scope|token\.endpoint\.url)": (
        "How the node gets a token for its own logins."
    ),
    r"sasl\.oauthbearer\.jwks\.endpoint\.(refresh|retry)\..+": "When the node reads the keys of the issuer again.",
    r"sasl\.server\.max\.receive\.size": "A limit of memory.",
    r"ssl\.(allow\.dn\.changes|allow\.san\.changes)": "Only of keystores that are changed while the node runs.",
    r"ssl\.(cipher\.suites|enabled\.protocols|protocol|secure\.random\.implementation)": "How it is encrypted.",
    r"ssl\.(key\.password|keymanager\.algorithm|keystore\..+)": "What the node itself presents.",
    r"ssl\.truststore\.password": "Only opens the truststore.",
    r"zookeeper\..+": "Of nodes with ZooKeeper, which no run starts.",
}
"""Pattern of other names that speak of security, without prefixes → what they decide."""
_SECRET = frozenset(
    {
        "delegation.token.master.key",
        "delegation.token.secret.key",
        "sasl.jaas.config",
        "ssl.truststore.certificates",
    }
)


def decides_access(name: str) -> bool:
    """Return whether a setting decides who may do what, of the node or of one listener or mechanism."""
    return _is_one_of(name, ACCESS)


def is_secret_access(name: str) -> bool:
    """Return whether the value of such a setting can be a secret (ConfigDef.Type.PASSWORD)."""
    return _is_one_of(name, _SECRET)


def why_not_access(name: str) -> str:
    """Return what a setting decides whose name speaks of security and that is none of `ACCESS`; empty if unknown."""
    return next((why for pattern, why in NOT_ACCESS.items() if re.fullmatch(pattern, name)), "")


def _is_one_of(name: str, names: frozenset[str]) -> bool:
    base = base_name(name)
    return base in names or (base != name and base.partition(".")[2] in names)
