"""The certificate that a TLS server of Kafka presents, seen in a handshake between two engines in one Java process.

Source: SslFactory.SslEngineValidator of Kafka, which connects two engines in this way. Which entry of a keystore a
server presents is the choice of its key manager, by the aliases and by the key types that the client supports.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError

from kafka_rollout.releases.jvm.jvm import Jvm

_ENGINE, _BUFFER = "javax.net.ssl.SSLEngine", "java.nio.ByteBuffer"
_SESSION, _CERTIFICATE = "javax.net.ssl.SSLSession", "java.security.cert.Certificate"
_BUFFER_BYTES = 64 * 1024
_MOST_TURNS = 60


def ask(jvm: Jvm, kind: str, target: Any, method: str, *arguments: tuple[str, Any]) -> Any:
    """Call a method of a public class or interface: that of the object itself can be one that Java does not export.

    `arguments`: name of the type, and value.
    """
    lang = jvm.packages.java.lang
    classes = lang.Class
    types = jvm.array(classes, [lang.Boolean.TYPE if of == "boolean" else classes.forName(of) for of, _ in arguments])
    return jvm.call(classes.forName(kind).getMethod(method, types), target, *(value for _, value in arguments))


def presented_alias(jvm: Jvm, server: Any, store: Any, aliases: Sequence[str]) -> str | None:
    """Return the one of `aliases` (entries with a key) that a server presents; None: it presents none to a client with
    Java's own preferences, or not all of its engine is Java's. `server`: its SSLEngine."""
    leaf = _presented(jvm, server, [store.getCertificate(alias) for alias in aliases])
    for alias in aliases if leaf is not None else ():
        # The certificates of a session can be of another class than those of the keystore.
        encoded = (ask(jvm, _CERTIFICATE, one, "getEncoded") for one in (leaf, store.getCertificate(alias)))
        first, second = (bytes(one) for one in encoded)
        if first == second:
            return alias
    return None


def _presented(jvm: Jvm, server: Any, trusted: Sequence[Any]) -> Any | None:
    """Connect a client that trusts these certificates themselves, until it has received one."""
    client = _client(jvm, server, trusted)
    engines = (client, server)
    # What each engine has sent.
    sent = {id(engine): jvm.packages.java.nio.ByteBuffer.allocate(_BUFFER_BYTES) for engine in engines}
    try:
        for _ in range(_MOST_TURNS):
            for engine, other in (engines, engines[::-1]):
                _turn(jvm, engine, sent[id(other)], sent[id(engine)])
            if (leaf := _received(jvm, client)) is not None:
                return leaf
    except Py4JJavaError:  # such as no common cipher, or a key that does not belong to the certificate
        return _received(jvm, client)
    return None


def _client(jvm: Jvm, server: Any, trusted: Sequence[Any]) -> Any:
    ssl = jvm.packages.javax.net.ssl
    store = jvm.packages.java.security.KeyStore.getInstance("PKCS12")
    store.load(None, None)
    for number, certificate in enumerate(trusted):
        store.setCertificateEntry(str(number), certificate)
    trust = ssl.TrustManagerFactory.getInstance(ssl.TrustManagerFactory.getDefaultAlgorithm())
    trust.init(store)
    context = ssl.SSLContext.getInstance("TLS")
    context.init(None, trust.getTrustManagers(), None)
    client = context.createSSLEngine()
    ask(jvm, _ENGINE, client, "setUseClientMode", ("boolean", True))
    ask(jvm, _ENGINE, server, "setNeedClientAuth", ("boolean", False))
    for what in ("EnabledProtocols", "EnabledCipherSuites"):
        ask(jvm, _ENGINE, client, f"set{what}", ("[Ljava.lang.String;", ask(jvm, _ENGINE, server, f"get{what}")))
    return client


def _turn(jvm: Jvm, engine: Any, received: Any, sent: Any) -> None:
    """Let an engine do what it needs next."""
    needs = str(ask(jvm, _ENGINE, engine, "getHandshakeStatus").name())
    if needs == "NOT_HANDSHAKING":
        ask(jvm, _ENGINE, engine, "beginHandshake")
    elif needs == "NEED_TASK":
        for task in _tasks(jvm, engine):
            ask(jvm, "java.lang.Runnable", task, "run")
    elif needs == "NEED_WRAP":
        _move(jvm, engine, "wrap", jvm.packages.java.nio.ByteBuffer.allocate(0), sent)
    else:
        ask(jvm, _BUFFER, received, "flip")
        _move(jvm, engine, "unwrap", received, jvm.packages.java.nio.ByteBuffer.allocate(_BUFFER_BYTES))
        ask(jvm, _BUFFER, received, "compact")


def _move(jvm: Jvm, engine: Any, method: str, source: Any, target: Any) -> None:
    ask(jvm, _ENGINE, engine, method, (_BUFFER, source), (_BUFFER, target))


def _tasks(jvm: Jvm, engine: Any) -> Iterator[Any]:
    while (task := ask(jvm, _ENGINE, engine, "getDelegatedTask")) is not None:
        yield task


def _received(jvm: Jvm, client: Any) -> Any | None:
    session = ask(jvm, _ENGINE, client, "getHandshakeSession") or ask(jvm, _ENGINE, client, "getSession")
    try:
        return next(iter(ask(jvm, _SESSION, session, "getPeerCertificates")), None)
    except Py4JJavaError:  # none yet
        return None
