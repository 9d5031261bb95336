"""Files of a Maven repository, by their Maven names."""

from __future__ import annotations

import errno
import hashlib
import ssl
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kafka_rollout.base.errors import FatalError, TransientError
from kafka_rollout.base.system.tls import trusting

if TYPE_CHECKING:
    import httpx

# Maven Central, in parts: a search of the tree for registries then finds those that do not belong into it.
_CENTRAL = f"https://{'.'.join(('repo1', 'maven', 'org'))}/maven2"
_AT_ONCE = 4  # downloads
_TIMEOUT_S = 60.0
_CHUNK = 1 << 20  # bytes
_NO_TRUST = "Repeat the command. If it happens again, do not trust the network."
_USABLE = "Check the network, its proxy and its certificates, then repeat the command."
_BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)


class ModulesMissingError(FatalError):
    """The repository does not have a module."""


@dataclass(frozen=True, slots=True, order=True)
class Module:
    """`group:artifact:version` with an optional `:classifier`, as Maven writes it."""

    group: str
    artifact: str
    version: str
    classifier: str = ""

    @classmethod
    def parse(cls, text: str) -> Module:
        return cls(*text.split(":"))

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}{f'-{self.classifier}' if self.classifier else ''}.jar"

    @property
    def pom(self) -> str:
        return f"{self.artifact}-{self.version}.pom"

    def __str__(self) -> str:
        return ":".join(filter(None, (self.group, self.artifact, self.version, self.classifier)))


@dataclass(frozen=True, slots=True)
class Repository:
    """A Maven repository. Every method raises ModulesMissingError for a file that it does not have, TransientError if
    it does not respond, and FatalError if it refuses the request, has no valid certificate, or the disk is full.
    """

    client: httpx.Client

    def jars(
        self,
        modules: Iterable[Module],
        folder: Path,
        *,
        published: bool = False,
        on_jar: Callable[[str], None] = lambda name: None,
    ) -> None:
        """Download the modules' jars into `folder`, flat. `on_jar` is called with the name of each downloaded jar.

        `published`: compares each jar with the SHA-1 that the repository publishes, and raises FatalError.
        """
        folder.mkdir(parents=True, exist_ok=True)

        def load(module: Module) -> str:
            digest = self._load(module, module.file, folder / module.file)
            if published:
                self._compare(module, module.file, digest)
            return module.file

        with ThreadPoolExecutor(_AT_ONCE) as pool:
            try:
                for name in pool.map(load, modules):
                    on_jar(name)
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def pom(self, module: Module) -> bytes:
        """Return the module's POM. Raises FatalError if it does not have its published SHA-1."""
        content = self._content(module, module.pom)
        self._compare(module, module.pom, hashlib.sha1(content, usedforsecurity=False).hexdigest())
        return content

    def _load(self, module: Module, name: str, path: Path) -> str:
        """Write a file to `path`; return its SHA-1."""
        digest = hashlib.sha1(usedforsecurity=False)
        with _network_errors(module, name), self.client.stream("GET", _path(module, name)) as response:
            response.raise_for_status()
            try:
                with path.open("wb") as file:
                    for chunk in response.iter_bytes(_CHUNK):
                        file.write(chunk)
                        digest.update(chunk)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
                raise FatalError(
                    "The disk has no space left for the jars.", remedy="Free space, then repeat the command."
                ) from error
        return digest.hexdigest()

    def _content(self, module: Module, name: str) -> bytes:
        with _network_errors(module, name):
            return self.client.get(_path(module, name)).raise_for_status().content

    def _compare(self, module: Module, name: str, digest: str) -> None:
        # some files have the file's name behind the digest
        expected = self._content(module, f"{name}.sha1").decode("ascii", "replace").split()[:1]
        if expected != [digest]:
            raise FatalError(
                f"{name} of the jar repository does not have its published SHA-1 {''.join(expected)}, but {digest}.",
                remedy=_NO_TRUST,
            )


@contextmanager
def open_repository(url: str = "") -> Iterator[Repository]:
    """Yield the repository at `url`; "" is Maven Central. Uses the system's proxy and its trusted certificates."""
    import httpx  # only here: the cache is opened by commands that never download

    bundle = system_certificates()
    try:
        trusted = trusting(bundle)
    except (ssl.SSLError, OSError) as error:
        raise FatalError(
            f"The trusted certificates in {bundle} cannot be read: {error}.",
            remedy="Correct the file or $SSL_CERT_FILE, then repeat the command.",
        ) from error
    limits = httpx.Limits(max_connections=_AT_ONCE)
    with httpx.Client(
        base_url=url or _CENTRAL, verify=trusted, timeout=_TIMEOUT_S, limits=limits, follow_redirects=True
    ) as client:
        yield Repository(client)


def system_certificates() -> Path | None:
    """The bundle of certificates that OpenSSL trusts on this machine ($SSL_CERT_FILE first), if there is one."""
    paths = ssl.get_default_verify_paths()
    candidates = [paths.cafile, f"{paths.capath}/ca-certificates.crt" if paths.capath else None, *_BUNDLES]
    return next((Path(path) for path in candidates if path and Path(path).is_file()), None)


def _path(module: Module, name: str) -> str:
    return f"{module.group.replace('.', '/')}/{module.artifact}/{module.version}/{name}"


@contextmanager
def _network_errors(module: Module, name: str) -> Iterator[None]:
    import httpx

    from kafka_rollout.base.system.http import can_pass

    try:
        yield
    except httpx.HTTPStatusError as error:
        status = error.response.status_code
        if status == httpx.codes.NOT_FOUND:
            raise ModulesMissingError(
                f"The repository of the jars does not have {module}.", remedy="Check that it is published."
            ) from None
        if status >= httpx.codes.INTERNAL_SERVER_ERROR or status == httpx.codes.TOO_MANY_REQUESTS:
            raise _no_response(f"status {status} for {name}") from None
        raise FatalError(
            f"The jar repository refused {name} with status {status}.",
            remedy="Check the proxy and its credentials, then repeat the command.",
        ) from None
    except httpx.TransportError as error:
        reason = str(error) or type(error).__name__
        if not can_pass(error):
            raise FatalError(f"The jar repository cannot be used: {reason}.", remedy=_USABLE) from error
        raise _no_response(reason) from error


def _no_response(reason: str) -> TransientError:
    return TransientError(
        f"The jar repository did not respond: {reason}.",
        remedy=_USABLE,
    )
