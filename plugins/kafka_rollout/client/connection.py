"""One connection to one node of a cluster: Kafka's protocol over a plain socket, message by message.

A rollout queries one chosen broker or controller, with its own time limit, also while other nodes do not run. Clients
for a whole cluster (bootstrap, metadata, background threads) cannot do that, and none of them connects to controllers
of 3.4. Messages, versions and SASL mechanisms are kafka-python's. No message is logged, because an authentication
request contains the password.
"""

from __future__ import annotations

import io
import socket
import ssl
import struct
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kafka import errors as kafka_errors
from kafka.net.sasl import get_sasl_mechanism
from kafka.protocol.broker_version_data import BrokerVersionData
from kafka.protocol.metadata import ApiVersionsRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from kafka_rollout.base.errors import CredentialsError, RefusedError, TransientError, UserError
from kafka_rollout.base.lease import Fence, unfenced
from kafka_rollout.base.outside_text import escape_invisible, parse_number
from kafka_rollout.base.system.files import check_readable
from kafka_rollout.base.system.tls import trusting
from kafka_rollout.client.security.carried_security import is_in_memory
from kafka_rollout.client.security.client_security import ClientSecurity, SaslMechanism

Decode = Callable[[memoryview], Any]
CLIENT_ID = "kafka-rollout"
_UNSUPPORTED_VERSION = 35
_LEAST_ITERATIONS = 4096
_MOST_AT_ONCE = 1 << 20
_PROBE_S = 2.0
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_MOST_HEADER_BYTES = 1024  # correlation id and tagged fields, of which no release has any
# kafka-python makes the class and the decoder of a version when it reads the first response of it, and is not safe
# among threads there: it can register a class that another one has replaced, and then no later response can be read.
_RESPONSE_CLASSES = threading.Lock()
_SETTINGS = "--command-config; in Airflow the cluster's Connection"
# The names in client.properties, and those in JSON.
_CA_SETTING = f"ssl.truststore.location or ca_location of {_SETTINGS}"
_LOGIN_SETTINGS = f"sasl.jaas.config, or username and password, of {_SETTINGS}"
# X509_V_ERR_* of OpenSSL, as in x509_vfy.h.
_NOT_YET_VALID, _EXPIRED = 9, 10
_NO_ROOT, _WEAK = 2, (66, 67, 68)
_OTHER_ISSUER, _OTHER_NAME = (7, 18, 19, 20, 21), (62, 64)  # 7: of an issuer with the same name
# Ends of the names of alerts of a listener with ssl.client.auth=required: without a certificate, and for one that it
# does not trust. The beginnings differ between releases of OpenSSL.
_NO_CERTIFICATE = ("ALERT_BAD_CERTIFICATE", "ALERT_CERTIFICATE_REQUIRED")
_OTHER_CERTIFICATE = (
    "ALERT_CERTIFICATE_UNKNOWN",
    "ALERT_CERTIFICATE_EXPIRED",
    "ALERT_CERTIFICATE_REVOKED",
    "ALERT_UNSUPPORTED_CERTIFICATE",
    "ALERT_UNKNOWN_CA",
)
_NO_TLS = {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}
# Errors of a lost connection, a timeout or another protocol; undecodable bytes raise the last three.
_NO_ANSWER = (OSError, ValueError, IndexError, struct.error)


class NotSentError(TransientError):
    """The node could not be reached: the request was not sent, so it can be sent to another node."""


class _OtherProtocolError(ValueError):
    """The port answered in another protocol than Kafka's. `remedy`: which settings the listener needs.

    `by_settings`: it is the protocol of a listener with other settings than those of this tool.
    """

    def __init__(self, sentence: str, remedy: str, *, by_settings: bool = False) -> None:
        super().__init__(sentence)
        self.remedy = remedy
        self.by_settings = by_settings


class NotOfferedError(RefusedError):
    """The node does not support the request in a version that has the needed fields: nothing was sent."""


class NodeConnection:
    """A connection that the first request opens, one request at a time; safe to use from several threads.

    `who` names the node in errors, for example `Node 3 (broker-3) at 127.0.0.1:9092`.
    """

    def __init__(self, address: str, who: str, security: ClientSecurity) -> None:
        self.who = who
        host, _, port = address.rpartition(":")
        self._host, self._port = host.strip("[]"), int(port)
        self._security = security
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._has_answered = False  # so the security settings are right

    def ask(self, request: Any, *, timeout_s: float, fence: Fence = unfenced, decode: Decode | None = None) -> Any:
        """Send a request in the highest version that both sides support and return the response.

        `fence` is called right before the request is sent, when the connection is open. `decode` decodes the body of
        the response instead of kafka-python.

        Raises NotSentError (node not reached), TransientError (no response), CredentialsError (authentication, TLS),
        NotOfferedError (no suitable version of the request).
        """
        what = type(request).__name__.removesuffix("Request")
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise NotSentError(f"{self.who} is still busy with an earlier request than {what}.")
        try:
            link = self._usable_link(deadline)
            try:
                request.API_VERSION = link.versions.api_version(request)
            except kafka_errors.IncompatibleBrokerVersion:
                raise NotOfferedError(
                    f"{self.who} does not support {what} in a suitable version.",
                    remedy="Its release is too old for this request.",
                ) from None
            fence()
            try:
                response = link.exchange(request, deadline, decode)
            except _NO_ANSWER as error:
                self._drop()
                self._raise_for_certificate(error)
                reason, remedy = self._cause(error, timeout_s)
                raise TransientError(f"{self.who} did not answer {what}: {reason}.", remedy=remedy) from None
            self._has_answered = True
            return response
        finally:
            self._lock.release()

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._link is not None:
            self._link.close()
        self._link = None

    def _usable_link(self, deadline: float) -> _Link:
        if self._link is not None and not self._link.is_usable():
            self._drop()
        if self._link is None:
            self._link = self._open(deadline)
        return self._link

    def _open(self, deadline: float) -> _Link:
        timeout_s = max(0.0, deadline - time.monotonic())
        try:
            link = _Link(self._connect(deadline))
            try:
                link.negotiate(deadline)
                if self._security.uses_sasl:
                    self._authenticate(link, deadline)
            except BaseException:
                link.close()
                raise
            return link
        except ssl.SSLCertVerificationError as error:
            of_listener = error.verify_code in (_NOT_YET_VALID, _EXPIRED)  # no setting of this tool corrects that
            raise (RefusedError if of_listener else CredentialsError)(
                f"The certificate of {self.who} is not trusted: {error.verify_message.rstrip('.')}.",
                remedy=_untrusted_remedy(error.verify_code),
            ) from None
        except _NO_ANSWER as error:
            self._raise_for_certificate(error)
            found = self._other_listener(error, deadline) or error
            reason, remedy = self._cause(found, timeout_s)
            sentence = f"{self.who} cannot be reached: {reason}."
            if isinstance(found, _OtherProtocolError):
                kind = CredentialsError if found.by_settings else RefusedError
                raise kind(sentence, remedy=remedy) from None
            raise NotSentError(sentence, remedy=remedy) from None

    def _other_listener(self, error: Exception, deadline: float) -> _OtherProtocolError | None:
        """Return that the listener has TLS and the settings do not, or the reverse, if that is seen.

        A listener closes a connection of the other kind without a word, as a node does that stops. So it is tried the
        other way; no credentials are sent.
        """
        uses_tls = self._security.uses_tls
        if uses_tls and isinstance(error, ssl.SSLError) and error.reason in _NO_TLS:
            return _without_tls()
        is_closed = isinstance(error, ConnectionError) or _is_end_of_stream(error)
        if not is_closed or isinstance(error, ConnectionRefusedError) or self._has_answered:
            return None
        try:
            with socket.create_connection(
                (self._host, self._port), timeout=min(_PROBE_S, _remaining(deadline))
            ) as plain:
                if uses_tls:
                    _Link(plain).negotiate(min(deadline, time.monotonic() + _PROBE_S))
                    return _without_tls()
                with _unverified().wrap_socket(plain):
                    return _with_tls()
        except ssl.SSLError as refused:  # an alert, for example for a missing certificate, is TLS too
            return _with_tls() if str(refused.reason).endswith((*_NO_CERTIFICATE, *_OTHER_CERTIFICATE)) else None
        except _NO_ANSWER:
            return None

    def _raise_for_certificate(self, error: Exception) -> None:
        """Raise CredentialsError if the listener wants a client certificate, or another one.

        With TLS 1.3 the alert arrives after the handshake, instead of the first response.
        """
        alert = str(error.reason) if isinstance(error, ssl.SSLError) else ""
        if not alert.endswith((*_NO_CERTIFICATE, *_OTHER_CERTIFICATE)):
            return
        if not self._security.certificate_location and alert.endswith(_NO_CERTIFICATE):
            raise CredentialsError(
                f"{self.who} requires a client certificate, and none was given.",
                remedy=f"Add ssl.keystore.location, or the certificate and key as PEM files ({_SETTINGS}).",
            ) from None
        words = alert.replace("_", " ").lower()
        raise CredentialsError(
            f"{self.who} refused the client certificate: {words}.",
            remedy=f"Use a certificate that the listener's truststore trusts ({_SETTINGS}).",
        ) from None

    def _cause(self, error: Exception, timeout_s: float) -> tuple[str, str]:
        """Return why there was no response, and what to do."""
        if isinstance(error, TimeoutError):
            return f"no answer within {timeout_s:.1f} s", ""
        if isinstance(error, ConnectionRefusedError):
            return "connection refused", ""
        if isinstance(error, socket.gaierror):
            return f"the host name {self._host} cannot be resolved", "Correct the host name in the address."
        if isinstance(error, _OtherProtocolError):
            return str(error), error.remedy
        if isinstance(error, ConnectionError) or _is_end_of_stream(error):
            return "the node closed the connection", "" if self._has_answered else self._other_security
        if isinstance(error, ssl.SSLError):
            words = (error.reason or str(error)).replace("_", " ").lower()
            return f"the TLS handshake failed: {words}", f"Compare the TLS settings with the listener's ({_SETTINGS})."
        return str(error) or type(error).__name__, ""

    @property
    def _other_security(self) -> str:
        """What a listener can need that closes connections with these settings."""
        uses = self._security
        missing = [name for name, used in (("TLS", uses.uses_tls), ("SASL", uses.uses_sasl)) if not used]
        if not missing:
            return f"Compare the security settings with those of the listener ({_SETTINGS})."
        return f"Does the listener need {' or '.join(missing)}? Add its settings ({_SETTINGS})."

    def _connect(self, deadline: float) -> socket.socket:
        plain = socket.create_connection((self._host, self._port), timeout=_remaining(deadline))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if not self._security.uses_tls:
            return plain
        try:
            plain.settimeout(_remaining(deadline))
            return _tls_context(self._security).wrap_socket(plain, server_hostname=self._host)
        except BaseException:
            plain.close()
            raise

    def _authenticate(self, link: _Link, deadline: float) -> None:
        """SASL handshake and exchange; a new connection replaces this one before the session expires (KIP-368)."""
        settings = self._security.sasl()
        name = settings["sasl_mechanism"]
        handshake = link.exchange(SaslHandshakeRequest(mechanism=name, version=1), deadline)
        if handshake.error_code:
            raise CredentialsError(
                f"{self.who} does not offer SASL mechanism {name}. It offers "
                f"{', '.join(handshake.mechanisms) or 'none'}.",
                remedy=_mechanism_remedy(handshake.mechanisms),
            )
        mechanism = get_sasl_mechanism(name)(host=self._host, **settings)
        while not mechanism.is_done():
            request = SaslAuthenticateRequest(mechanism.auth_bytes())
            request.API_VERSION = link.versions.api_version(request)
            asked_at = time.monotonic()
            response = link.exchange(request, deadline)
            if response.error_code:
                raise CredentialsError(
                    f"{self.who} refused the authentication of user {self._security.username} ({name}).",
                    remedy=f"Check the user name and the password ({_LOGIN_SETTINGS}).",
                )
            if name.startswith("SCRAM-"):
                self._check_scram(bytes(response.auth_bytes), name)
            try:
                mechanism.receive(response.auth_bytes)
            except (KeyError, TypeError, AttributeError) as error:  # an answer without a field of the mechanism
                raise ValueError(f"{self.who} sent an unusable answer of {name}: {error}") from None
            lifetime_ms = response.session_lifetime_ms or 0
            if lifetime_ms > 0:
                link.renew_at = asked_at + 0.8 * lifetime_ms / 1000

    def _check_scram(self, message: bytes, name: str) -> None:
        """Refuse an error of the server, and a proof of the password that could be guessed (RFC 5802, section 5.1).

        The least number of iterations is that of RFC 7677 and of Kafka (ScramMechanism).
        """
        for part in message.split(b","):
            value = escape_invisible(part[2:].decode(errors="replace"), limit=80)
            if part.startswith(b"e="):
                raise CredentialsError(
                    f"{self.who} refused the authentication of user {self._security.username} ({name}): {value}.",
                    remedy=f"Check the user name and the password ({_LOGIN_SETTINGS}).",
                )
            if part.startswith(b"i=") and (parse_number(value) or 0) < _LEAST_ITERATIONS:
                raise CredentialsError(
                    f"{self.who} asks for {value} iterations of {name}. Fewer than {_LEAST_ITERATIONS:,} do not "
                    "protect the password.",
                    remedy="Check that this is the broker. Create the SCRAM credentials again with at least "
                    f"{_LEAST_ITERATIONS} iterations.",
                )


def _is_end_of_stream(error: Exception) -> bool:
    """Return whether the other side closed a TLS connection: each Python and OpenSSL reports it in another way.

    Python 3.11.2 raises SSLZeroReturnError in a handshake, 3.11.7 SSLEOFError, others SSLError with OpenSSL's reason.
    """
    return isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError) or (
        isinstance(error, ssl.SSLError) and error.reason == "UNEXPECTED_EOF_WHILE_READING"
    )


class _Link:
    """An open socket with Kafka's protocol. `negotiate` sets `versions`."""

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._correlation_id = 0
        self.versions = BrokerVersionData(api_versions={})
        self.renew_at = float("inf")

    def is_usable(self) -> bool:
        """Whether an idle link can be used: its session is valid, and no bytes and no end of stream have arrived."""
        if time.monotonic() >= self.renew_at:
            return False
        try:
            self._socket.settimeout(0)
            self._socket.recv(1)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()

    def negotiate(self, deadline: float) -> None:
        response = ask_api_versions(lambda request: self.exchange(request, deadline))
        self.versions = BrokerVersionData(
            api_versions={api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        )

    def exchange(self, request: Any, deadline: float, decode: Decode | None = None) -> Any:
        self._correlation_id += 1
        request.with_header(correlation_id=self._correlation_id, client_id=CLIENT_ID)
        self._socket.settimeout(_remaining(deadline))
        self._socket.sendall(request.encode(framed=True, header=True))
        (size,) = struct.unpack(">i", self._receive(4, deadline))
        if not 0 < size <= _MAX_RESPONSE_BYTES:
            raise _other_protocol(struct.pack(">i", size))
        answer = self._receive(size, deadline)
        return read_response(request, answer, decode)

    def _receive(self, size: int, deadline: float) -> memoryview:
        """`size` is what the node announces: memory grows with the bytes that arrive."""
        received = bytearray()
        while len(received) < size:
            self._socket.settimeout(_remaining(deadline))
            part = self._socket.recv(min(size - len(received), _MOST_AT_ONCE))
            if not part:
                raise ConnectionResetError
            received += part
        return memoryview(received)


def read_response(request: Any, answer: memoryview, decode: Decode | None = None) -> Any:
    """Return the decoded response: header and body in `answer`. Raises ValueError if it belongs to another request."""
    with _RESPONSE_CLASSES:
        response_class = request.header.get_response_class()
        header = io.BytesIO(answer[:_MOST_HEADER_BYTES])
        if response_class.parse_header(header).correlation_id != request.header.correlation_id:
            raise ValueError("the response belongs to another request")
        body = answer[header.tell() :]
        if decode is None:
            return response_class.decode(body)
    return decode(body)


def ask_api_versions(exchange: Any) -> Any:
    """ApiVersions in the highest version that the node supports.

    Only version 4 contains features whose minimum is 0 (KAFKA-17011). A node that does not support a version answers
    UNSUPPORTED_VERSION with the versions that it supports.
    """
    version = ApiVersionsRequest.max_version
    while True:
        response = exchange(
            ApiVersionsRequest(client_software_name=CLIENT_ID, client_software_version="1", version=version)
        )
        if response.error_code == 0:
            return response
        lower = max(
            (api.max_version for api in response.api_keys if api.api_key == ApiVersionsRequest.API_KEY), default=0
        )
        if response.error_code != _UNSUPPORTED_VERSION or lower >= version:
            raise ValueError(f"ApiVersions was answered {kafka_errors.for_code(response.error_code).__name__}")
        version = lower


def _untrusted_remedy(verify_code: int) -> str:
    """Return what to do about a certificate, by OpenSSL's X509_V_ERR code."""
    if verify_code == _EXPIRED:
        return (
            "Renew the certificate of the listener, or the one of an authority that it sends with it, and restart the "
            "node or reconfigure its keystore."
        )
    if verify_code == _NOT_YET_VALID:
        return "Compare the clocks of this machine and of the machine that issued the certificate."
    if verify_code in _OTHER_NAME:
        return (
            "Use an address that the certificate names (subjectAltName), or renew the certificate with the name of the "
            "host."
        )
    if verify_code == _NO_ROOT:
        return (
            f"Add the certificate of the root to the CA file ({_CA_SETTING}). The file has an authority that another "
            "one issued: Java accepts it so, OpenSSL and librdkafka do not."
        )
    if verify_code in _WEAK:
        return (
            "Renew the weak certificate, that of the listener or of the authority that issued it, with a key of 2048 "
            "bits (RSA) and SHA-256, and restart the node or reconfigure its keystore."
        )
    if verify_code in _OTHER_ISSUER:
        return f"Correct the CA file ({_CA_SETTING}): it must have the certificate that issued this one."
    return f"Check the certificate of the listener and the CA file ({_CA_SETTING})."


def _tls_context(security: ClientSecurity) -> ssl.SSLContext:
    files = [one for one in (security.ca_location, security.certificate_location, security.key_location) if one]
    try:
        for file in files:  # OpenSSL waits for the writer of a FIFO
            check_readable(Path(file))
        context = trusting(security.ca_location)
        context.check_hostname = security.check_hostname
        if security.certificate_location and security.key_location:
            password = security.key_password.get_secret_value() if security.key_password else _refuse_prompt
            context.load_cert_chain(security.certificate_location, security.key_location, password)
    except OSError as error:  # ssl.SSLError is one
        raise _unusable(security, error) from None
    except UserError as error:
        raise CredentialsError(error.sentence, remedy=f"Correct the path ({_SETTINGS}).") from None
    return context


def _refuse_prompt() -> str:
    """OpenSSL calls this for an encrypted key. Without it, it would ask the terminal for the password."""
    raise _NoPasswordError


class _NoPasswordError(OSError):
    """The key is encrypted, and the settings have no password."""


def _unusable(security: ClientSecurity, error: OSError) -> CredentialsError:
    """Return which file of the TLS settings cannot be used."""
    if isinstance(error, _NoPasswordError):
        key = str(security.key_location)
        return CredentialsError(
            f"The private key {'of the settings' if is_in_memory(key) else f'in {key}'} is encrypted, and its password "
            "is not set.",
            remedy=f"Set ssl.key.password ({_SETTINGS}).",
        )
    files = [f for f in (security.ca_location, security.certificate_location, security.key_location) if f]
    for file in files:
        try:
            check_readable(Path(file))
        except OSError as unread:
            return CredentialsError(
                f"The file {file} of the TLS settings cannot be read: {unread.strerror}.",
                remedy=f"Correct its path ({_SETTINGS}).",
            )
    reason = error.reason if isinstance(error, ssl.SSLError) and error.reason else error
    pair = "; the key must belong to the certificate" if security.key_location else ""
    pair += ", and ssl.key.password must be that of the key" if security.key_password else ""
    named = ", ".join(dict.fromkeys("PEM text of the settings" if is_in_memory(file) else file for file in files))
    return CredentialsError(
        f"The TLS settings cannot be used ({named}): {reason}.", remedy=f"Use PEM files{pair} ({_SETTINGS})."
    )


def _with_tls() -> _OtherProtocolError:
    remedy = f"Set security.protocol to SSL or SASL_SSL ({_SETTINGS})."
    return _OtherProtocolError("this port speaks TLS", remedy, by_settings=True)


def _without_tls() -> _OtherProtocolError:
    remedy = f"Correct security.protocol ({_SETTINGS})."
    return _OtherProtocolError("this port does not speak TLS", remedy, by_settings=True)


def _unverified() -> ssl.SSLContext:
    """Return a context for a handshake after which nothing is sent."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _other_protocol(begin: bytes) -> _OtherProtocolError:
    """Return the error for the first bytes of a response that cannot be the size of one of Kafka's."""
    if begin[:2] in (b"\x15\x03", b"\x16\x03"):  # a TLS record: alert, handshake
        return _with_tls()
    protocol = "HTTP" if begin == b"HTTP" else "not Kafka's protocol"
    return _OtherProtocolError(f"this port speaks {protocol}", "Use the address of one of Kafka's listeners.")


def _remaining(deadline: float) -> float:
    remaining = deadline - time.monotonic()
    if remaining <= 0:
        raise TimeoutError
    return remaining


def _mechanism_remedy(offered: Iterable[str]) -> str:
    """Return the mechanisms of a listener with which this tool can log in, or what the listener needs."""
    usable = [name for name in SaslMechanism if name in offered]
    if usable:
        return f"Set sasl.mechanism, or mechanism, to {' or '.join(usable)} ({_SETTINGS})."
    return (
        f"This tool logs in with {', '.join(SaslMechanism)} or a client certificate, and not with Kerberos or a class "
        "of your own. Add one of them to sasl.enabled.mechanisms of the listener, or add a listener for this tool."
    )
