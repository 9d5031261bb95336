"""Requests with credentials are made by one client, which follows no redirect. Jars are public: they have their own."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.architecture.rooms import PACKAGE, nodes_of
from tests.paths import ROOT

CLIENT = "plugins/kafka_rollout/base/system/http.py"
PUBLIC = "plugins/kafka_rollout/releases/jars/maven.py"  # files that everybody can read, compared with their SHA-256
SSH = "plugins/kafka_rollout/nodes/runtimes/hosts/shells.py"  # a transport below the client: it sends one request
OTHERS = {"requests", "aiohttp", "urllib3", "httplib2", "pycurl", "http.client", "urllib.request"}
MAKES = {
    "Client",
    "AsyncClient",
    "HTTPTransport",
    "get",
    "post",
    "put",
    "patch",
    "delete",
    "head",
    "options",
    "request",
}


def requests_of(source: str) -> Iterator[str]:
    """What in a file makes an HTTP request past the client."""
    for node in nodes_of(source):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        for name in names:
            if name.removeprefix("httpx.") in MAKES or any(f"{name}.".startswith(f"{other}.") for other in OTHERS):
                yield f"import: {name}"
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name("httpx"), attr=name)) if name in {*MAKES, "stream"}:
                yield f"line {node.lineno}: httpx.{name}"


def test_every_request_is_made_by_the_client_that_follows_no_redirect() -> None:
    found = {}
    folders = [PACKAGE, *(ROOT / name for name in ("spark_jobs", "dags", "tools/derivation"))]
    for path in [path for folder in folders for path in folder.rglob("*.py")]:
        if lines := list(requests_of(path.read_text())):
            found[str(path.relative_to(ROOT))] = lines
    assert set(found) == {CLIENT, PUBLIC, SSH}
    assert {line.partition(": ")[2] for line in found[SSH]} <= {
        f"http.client{name}" for name in ("", ".HTTPConnection", ".HTTPException", ".HTTPResponse")
    }


@pytest.mark.parametrize(
    "line",
    [
        "import urllib.request",
        "from urllib.request import urlopen",
        "from urllib import request",
        "import requests",
        "from http.client import HTTPConnection",
        "import httpx\nhttpx.post(url)",
        "import httpx\nwith httpx.Client() as client: pass",
        "from httpx import Client",
    ],
)
def test_each_other_way_is_seen(line: str) -> None:
    assert list(requests_of(line))


def test_every_server_s_certificate_is_checked_by_the_same_rules() -> None:
    makers = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if "create_default_context(" in path.read_text()
    }
    assert makers == {"base/system/tls.py"}
