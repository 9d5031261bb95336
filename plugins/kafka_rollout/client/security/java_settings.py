"""Names of security settings that Kafka's Java clients accept in a file, and what they mean for other clients.

A test derives both lists from the ConfigDef of the clients and of the broker of several releases: a name that is new in
a release belongs to one of the sets here, or is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SECURITY = "org.apache.kafka.common.security"
OF_BROKERS = frozenset(
    {
        "sasl.enabled.mechanisms",
        "sasl.kerberos.principal.to.local.rules",
        "sasl.mechanism.controller.protocol",
        "sasl.mechanism.inter.broker.protocol",
        "sasl.server.callback.handler.class",
        "sasl.server.max.receive.size",
        "security.inter.broker.protocol",
        "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
        "ssl.client.auth",
        "ssl.principal.mapping.rules",
    }
)
"""Settings of KafkaConfig that no client reads. People copy the lines of a broker into a client's file."""
WITHOUT_EFFECT = re.compile(
    r"ssl\.(truststore\.type|keystore\.type|protocol|enabled\.protocols|provider|secure\.random\.implementation"
    r"|keymanager\.algorithm|trustmanager\.algorithm)"
    r"|sasl\.kerberos\..+|sasl\.login\.(refresh\..+|retry\..+|connect\.timeout\.ms|read\.timeout\.ms)"
    r"|sasl\.oauthbearer\.(clock\.skew\.seconds|jwks\..+|scope\.claim\.name|sub\.claim\.name|expected\..+"
    r"|allow\.unverified\..+)"
)
"""They do not change who connects, or with what protection: the server validates tokens, and the format of a store is
read from its content."""
KAFKAS_CLASSES: Mapping[str, frozenset[str]] = {
    "sasl.login.callback.handler.class": frozenset(
        {
            f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
            f"{_SECURITY}.oauthbearer.secured.OAuthBearerLoginCallbackHandler",
            f"{_SECURITY}.authenticator.AbstractLogin$DefaultLoginCallbackHandler",
        }
    ),
    "sasl.login.class": frozenset(
        {
            f"{_SECURITY}.authenticator.DefaultLogin",
            f"{_SECURITY}.oauthbearer.internals.OAuthBearerRefreshingLogin",
        }
    ),
    "sasl.client.callback.handler.class": frozenset(
        {
            f"{_SECURITY}.authenticator.SaslClientCallbackHandler",
            f"{_SECURITY}.oauthbearer.internals.OAuthBearerSaslClientCallbackHandler",
        }
    ),
    "sasl.oauthbearer.jwt.retriever.class": frozenset(
        {f"{_SECURITY}.oauthbearer.DefaultJwtRetriever", f"{_SECURITY}.oauthbearer.ClientCredentialsJwtRetriever"}
    ),
    "sasl.oauthbearer.jwt.validator.class": frozenset(
        {f"{_SECURITY}.oauthbearer.DefaultJwtValidator", f"{_SECURITY}.oauthbearer.ClientJwtValidator"}
    ),
    "ssl.engine.factory.class": frozenset({f"{_SECURITY}.ssl.DefaultSslEngineFactory"}),
}
"""Settings with a class → the classes of Kafka that do what the other client libraries do."""
