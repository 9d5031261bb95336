"""The inventory says what is wrong in one sentence, and never takes a credential."""

from __future__ import annotations

import os
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from kafka_rollout.base.errors import UserError
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.clusters.entries import PackageEntry, ServiceEntry, service_of
from kafka_rollout.clusters.inventory import (
    dump_cluster,
    get_cluster,
    list_readable_clusters,
    load_cluster,
)
from kafka_rollout.model.pace import Pace, PaceNumbers
from kafka_rollout.model.topology import Role
from tools.demo.folder import PROJECT_ROOT
from tools.testbed.packages import PACKAGE as TESTBED_PACKAGE

CLUSTERS = PROJECT_ROOT / "include" / "clusters"


def inventory(**changes: Any) -> dict[str, Any]:
    return {
        "name": "orders",
        "runtime": "local_process",
        "nodes": [
            {
                "id": 1,
                "name": "node-1",
                "roles": ["broker", "controller"],
                "broker_address": "127.0.0.1:19092",
                "controller_address": "127.0.0.1:19093",
                "prometheus_url": "http://127.0.0.1:19094/metrics",
                "jolokia_url": "http://127.0.0.1:19095/jolokia",
                "directory": "nodes/node-1",
            }
        ],
        **changes,
    }


def node(**changes: Any) -> dict[str, Any]:
    return {**inventory()["nodes"][0], **changes}


def write(folder: Path, data: object, name: str = "orders.yaml") -> Path:
    path = folder / name
    path.write_text(data if isinstance(data, str) else yaml.safe_dump(data))
    return path


def at(folder: Path) -> Settings:
    return replace(Settings.from_environment(), clusters=folder)


def test_the_example_is_a_cluster_of_three_controllers_and_three_brokers() -> None:
    spec = list_readable_clusters(at(CLUSTERS))[0]["local"]
    assert (len(spec.controllers), len(spec.brokers)) == (3, 3)
    assert spec.bootstrap_servers == "127.0.0.1:19010,127.0.0.1:19020,127.0.0.1:19030"


def test_approvers_are_user_ids_which_may_be_numbers(tmp_path: Path) -> None:
    assert load_cluster(write(tmp_path, "approvers: [anna, 7]\n" + yaml.safe_dump(inventory()))).approvers == (
        "anna",
        "7",
    )


def test_four_eyes_need_a_second_approver(tmp_path: Path) -> None:
    assert not load_cluster(write(tmp_path, inventory(approvers=["anna"]))).four_eyes
    assert load_cluster(write(tmp_path, inventory(approvers=["anna", "ben"], four_eyes=True))).four_eyes
    with pytest.raises(UserError, match="needs a second approver besides anna"):
        load_cluster(write(tmp_path, inventory(approvers=["anna"], four_eyes=True)))
    with pytest.raises(UserError, match="four_eyes"):
        load_cluster(write(tmp_path, inventory(approvers=["anna", "ben"], four_eyes="yes")))


def test_a_shell_s_user_is_one_of_the_approvers(tmp_path: Path) -> None:
    names = {"svc-anna": "anna"}
    assert load_cluster(write(tmp_path, inventory(shell_approvers=names))).shell_approvers == names
    with pytest.raises(UserError, match="shell_approvers names anna, who is not one of approvers"):
        load_cluster(write(tmp_path, inventory(approvers=["ben", "carl"], shell_approvers=names)))


def test_a_cluster_without_a_runtime_needs_no_address_of_a_controller(tmp_path: Path) -> None:
    brokers = [node(roles=["broker"], controller_address=None, directory=None)]
    combined = [node(controller_address=None, directory=None, broker_address="kafka-1.example.com:9092")]
    for nodes in (brokers, combined):
        spec = load_cluster(write(tmp_path, inventory(runtime="none", nodes=nodes)))
        assert not spec.manages_nodes
        assert load_cluster(write(tmp_path, dump_cluster(spec), "again.yaml")) == spec
    with pytest.raises(UserError, match="the cluster has no controller"):
        load_cluster(write(tmp_path, inventory(nodes=brokers)))
    with pytest.raises(UserError, match="needs a controller_address"):
        load_cluster(write(tmp_path, inventory(nodes=combined)))
    silent = {"directory": None, "prometheus_url": None, "jolokia_url": None}
    alone = node(id=2, name="c", roles=["controller"], broker_address=None, controller_address=None, **silent)
    with pytest.raises(UserError, match="needs a controller_address"):
        load_cluster(write(tmp_path, inventory(runtime="none", nodes=[*brokers, alone])))


def test_what_was_dumped_is_read_back_the_same(tmp_path: Path) -> None:
    data = inventory(
        approvers=["alice", "ben"],
        four_eyes=True,
        shell_approvers={"svc-alice": "alice"},
        window="0 22 * * Mon-Fri 6h Europe/Berlin",
        freeze_days=["2026-12-24"],
        gate_timeout_s=900,
        max_under_replicated=3,
        one_rack_at_a_time=False,
        approval_timeout_hours=8,
        paces={"normal": {"soak_s": 300, "interval_s": 2}},
        feature_approval="always",
        connection_id="orders",
        release_overrides={"4.3.1": {"num.io.threads": 8}},
        metrics={"app": "build_info{version=release}"},
    )
    spec = load_cluster(write(tmp_path, data))
    assert spec.release_overrides == {"4.3.1": {"num.io.threads": "8"}}
    assert spec.paces == {Pace.NORMAL: PaceNumbers(soak_s=300.0, checks=3, interval_s=2.0)}
    assert spec.node(1).roles == {Role.BROKER, Role.CONTROLLER}
    assert load_cluster(write(tmp_path, dump_cluster(spec), "again.yaml")) == spec


@pytest.mark.parametrize("schedule", ["@daily", "30 4 * * 1-5", "never"])
def test_a_cluster_says_when_it_is_scanned(tmp_path: Path, schedule: str) -> None:
    assert load_cluster(write(tmp_path, inventory())).scan_schedule == "@daily"
    spec = load_cluster(write(tmp_path, inventory(scan_schedule=schedule)))
    assert spec.scan_schedule == schedule
    assert load_cluster(write(tmp_path, dump_cluster(spec), "again.yaml")) == spec


@pytest.mark.parametrize(
    ("schedule", "form"), [("@hourly", "M * * * *"), ("@daily", "M H * * *"), ("@weekly", "M H * * 0")]
)
def test_a_fleet_does_not_begin_all_its_scans_at_once(tmp_path: Path, schedule: str, form: str) -> None:
    spec = load_cluster(write(tmp_path, inventory(scan_schedule=schedule)))
    times = [replace(spec, name=f"cluster-{number}").scan_times for number in range(500)]
    assert times == [replace(spec, name=f"cluster-{number}").scan_times for number in range(500)]
    pattern = re.compile(re.escape(form).replace("M", "([0-9]|[1-5][0-9])").replace("H", "[0-5]"))
    assert all(map(pattern.fullmatch, times)), times[:3]
    assert max(Counter(times).values()) <= (20 if schedule == "@hourly" else 8)
    assert {time.split()[0] for time in times} == {str(minute) for minute in range(60)}


def test_a_relative_directory_counts_from_the_file(tmp_path: Path) -> None:
    assert load_cluster(write(tmp_path, inventory())).node(1).directory == str(tmp_path / "nodes" / "node-1")


@pytest.mark.parametrize(
    ("data", "says"),
    [
        pytest.param(inventory(sasl_password="x"), "credential at sasl_password", id="credential by its key"),
        pytest.param(
            inventory(release_overrides={"4.3.1": {"listener.name.sasl.jaas.config": "x"}}),
            "credential at release_overrides.4.3.1.listener.name.sasl.jaas.config",
            id="credential in an override",
        ),
        pytest.param(
            inventory(nodes=[node(jolokia_url="http://me:hunter2@127.0.0.1:1/jolokia")]),
            "credential at nodes[0].jolokia_url",
            id="credential in a url",
        ),
        *(
            pytest.param(
                inventory(nodes=[node(prometheus_url=f"http://127.0.0.1:1/metrics?{query}")]),
                "credential at nodes[0].prometheus_url",
                id=query,
            )
            for query in (
                "token=hunter2",
                "a=b&access_token=hunter2",
                "api_key=hunter2",
                "apikey=hunter2",
                "sig=hunter2",
            )
        ),
        pytest.param(inventory(metrics={"levels": "x"}), "metrics.levels", id="not a metric of ours"),
        pytest.param(
            inventory(metrics={"app": "x{"}), "metrics.app must be the name of a metric", id="not a name of a metric"
        ),
        pytest.param(inventory(nmae="x"), "nmae is not a key of an inventory", id="unknown key"),
        pytest.param(inventory(scan_schedule="daily"), "'daily' is not a schedule", id="not a schedule"),
        pytest.param(inventory(scan_schedule="R 1 * * *"), "'R 1 * * *' is not a schedule", id="a random minute"),
        pytest.param(inventory(scan_schedule="0 0 30 2 *"), "'0 0 30 2 *' is a day that never comes", id="no such day"),
        pytest.param(inventory(approvers=[" "]), "an approver has no name", id="an approver without a name"),
        pytest.param(
            inventory(approvers=["ada", "Ada"], four_eyes=True), "four_eyes needs a second approver", id="one approver"
        ),
        pytest.param(inventory(paces={"fast": {"soak_s": float("inf")}}), "paces.fast.soak_s", id="an endless soak"),
        pytest.param(inventory(window="at night"), "is not a maintenance window", id="not a window"),
        pytest.param(inventory(freeze_days=["Christmas"]), "'Christmas' is not a freeze day", id="not a day"),
        pytest.param(inventory(gate_timeout_s=0), "gate_timeout_s", id="no time for a gate"),
        pytest.param(inventory(paces={"slow": {}}), "paces.slow", id="an unknown pace"),
        pytest.param(
            inventory(release_overrides={"4.3.1": {}, "04.3.1": {}}),
            "release_overrides has release 4.3.1 twice",
            id="two spellings of a release",
        ),
        pytest.param(inventory(scan_schedule="99 4 * * *"), "'99 4 * * *' is not a schedule", id="no such minute"),
        pytest.param(
            inventory(nodes=[node(rols=["broker"])]), "nodes[0].rols is not a key", id="unknown key of a node"
        ),
        pytest.param({"nodes": inventory()["nodes"]}, "name is missing", id="missing key"),
        pytest.param(inventory(runtime="docker"), "runtime must be 'local_process'", id="unknown runtime"),
        pytest.param(inventory(check_release="4.3"), "wrong: check_release must be", id="no release to check"),
        pytest.param(inventory(service={"unit": "a b"}), "service.unit must be the name of a", id="no unit"),
        pytest.param(inventory(nodes=[node(id=2**31)]), "nodes[0].id must be less than or equal", id="large id"),
        pytest.param("name: orders\nnodes:\n- id: 010\n", "010 is no decimal number", id="octal id"),
        pytest.param("owner: 1:30\n", "1:30 is no decimal number", id="base 60"),
        pytest.param(inventory(nodes=[node(rack=1)]), "nodes[0].rack must be text", id="rack without quotes"),
        pytest.param(
            inventory(release_overrides={4.3: {"a": "b"}}), "a key of release_overrides.4.3 must be text", id="release"
        ),
        pytest.param(inventory(nodes=[node(roles=[])]), "nodes[0].roles must have at least 1 item.", id="no roles"),
        pytest.param(inventory(nodes=[node(id="1")]), "nodes[0].id must be a valid integer", id="id as text"),
        pytest.param(
            inventory(nodes=[node(roles=["broker"])]), "must not have a controller_address", id="stray address"
        ),
        pytest.param(inventory(nodes=[node(broker_address=None)]), "needs a broker_address", id="no address"),
        pytest.param(inventory(nodes=[node(directory=None)]), "needs a directory", id="no directory"),
        pytest.param(
            inventory(nodes=[node(broker_address="10.0.0.1:9092")]),
            "only uses loopback addresses",
            id="remote local process",
        ),
        pytest.param(inventory(nodes=[node(), node(name="node-2")]), "two nodes have the id 1", id="same id twice"),
        pytest.param(
            inventory(nodes=[node(roles=["broker"], controller_address=None)]), "has no controller", id="no controller"
        ),
        pytest.param("name: a\nname: b\n", "key 'name' is a duplicate in line 2", id="same key twice"),
        pytest.param("name: [", "is not YAML", id="not YAML"),
        pytest.param("just text", "describes no cluster", id="no mapping"),
        pytest.param("? [a, b]\n: c\n", "a key is not plain text in line 1", id="complex key"),
        pytest.param("owner: {? {a: b} : c}\n", "a key is not plain text in line 1", id="complex key below"),
        pytest.param("owner: " + "[" * 20_000, "nested too deeply", id="deep lists"),
        pytest.param("{a: " * 20_000, "nested too deeply", id="deep mappings"),
        pytest.param("id: " + "1" * 5_000, "is not YAML", id="endless number"),
        pytest.param("owner: 2026-99-99", "is not YAML: month must be in 1..12", id="no date"),
        pytest.param(
            "a0: &a0 [x]\n" + "".join(f"a{n + 1}: &a{n + 1} [{f'*a{n}, ' * 9}]\n" for n in range(40)),
            "name is missing",
            id="aliases of aliases",
        ),
        pytest.param(
            "m0: &m0 {a: 1}\nm1: {<<: *m0}\n",
            "the merge key '<<' is not supported; write the lines out in line 2",
            id="merge key",
        ),
    ],
)
def test_a_wrong_inventory_is_one_sentence_naming_file_and_key(tmp_path: Path, data: object, says: str) -> None:
    path = write(tmp_path, data)
    with pytest.raises(UserError) as caught:
        load_cluster(path)
    assert str(path) in caught.value.sentence
    assert says in caught.value.sentence
    assert "\n" not in str(caught.value)
    assert caught.value.remedy
    assert "hunter2" not in str(caught.value)


@pytest.mark.timeout(60)
def test_an_inventory_that_is_a_fifo_is_refused_and_the_others_are_read(tmp_path: Path) -> None:
    write(tmp_path, inventory())
    os.mkfifo(tmp_path / "fifo.yaml")
    clusters, problems = list_readable_clusters(at(tmp_path))
    assert list(clusters) == ["orders"]
    assert "is a FIFO, not a file" in problems[tmp_path / "fifo.yaml"].sentence


@pytest.mark.parametrize("other", ["orders-old.yaml", "orders.bak.yaml", "zz.yml"])
@pytest.mark.parametrize("unread", ["", "orders.yaml", "orders-old.yaml orders.bak.yaml zz.yml"])
def test_of_two_files_for_one_cluster_none_is_used(tmp_path: Path, other: str, unread: str) -> None:
    """A copy of the file has the approvers, hosts and conditions of another day."""
    write(tmp_path, inventory(approvers=["ada", "grace"], four_eyes=True), "orders.yaml")
    write(tmp_path, inventory(), other)
    write(tmp_path, inventory(name="payments"), "payments.yaml")
    for name in {"orders.yaml", other} & {*unread.split()}:
        (tmp_path / name).write_text((tmp_path / name).read_text() + "\tx: [\n")
    clusters, problems = list_readable_clusters(at(tmp_path))
    assert list(clusters) == ["payments"]
    assert {path.name for path in problems} == {"orders.yaml", other}
    said = [problem for path, problem in problems.items() if path.name not in unread]
    assert said
    assert all(one.sentence.startswith("Several inventories describe cluster orders: ") for one in said)
    assert all(name in said[0].sentence for name in ("orders.yaml", other))
    with pytest.raises(UserError, match="orders"):
        get_cluster("orders", at(tmp_path))
    (tmp_path / other).rename(tmp_path / f"{other}.old")
    assert ("orders" in list_readable_clusters(at(tmp_path))[0]) is ("orders.yaml" not in unread)


def test_a_broken_copy_with_another_form_of_the_name_is_one_for_the_cluster_too(tmp_path: Path) -> None:
    write(tmp_path, inventory(), "orders.yaml")
    for line, is_used in (("'name' : \"orders\"  # x", False), ("name: orders2", True), ("  name: orders", True)):
        (tmp_path / "copy.yaml").write_text(f"x: [\n{line}\n")
        assert ("orders" in list_readable_clusters(at(tmp_path))[0]) is is_used


def test_an_unknown_cluster_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    write(tmp_path, inventory())
    with pytest.raises(UserError, match=r"contains no cluster order\..* has orders"):
        get_cluster("order", at(tmp_path))


def test_a_missing_file_or_folder_is_said(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        load_cluster(tmp_path / "none.yaml")
    with pytest.raises(UserError, match="for inventories does not exist"):
        list_readable_clusters(at(tmp_path / "none"))


HOSTS = """
name: far
runtime: ssh_service
ssh_connection_id: kafka-hosts
service:
  unit: {broker: kafka-broker, controller: kafka-controller}
  symlink: /srv/kafka
  before_stop: [{command: drain me, timeout_s: 5}]
nodes:
- {id: 1, name: a, roles: [broker], broker_address: "kafka-1:9092", host: kafka-1}
- {id: 2, name: b, roles: [controller], controller_address: "kafka-1:9093", host: kafka-1,
   service: {configuration: managed_elsewhere, symlink: /opt/kafka, configuration_file: /etc/kafka/b.properties}}
"""
SHA512 = "0B2A" * 32


def test_nodes_on_hosts_have_the_service_of_the_cluster_and_their_own_overrides(tmp_path: Path) -> None:
    pinned = f"service:\n  archive_sha512: {{4.3.1: {SHA512}}}\n  configuration_writer: user\n"
    (tmp_path / "far.yaml").write_text(HOSTS.replace("service:\n", pinned, 1))
    spec = load_cluster(tmp_path / "far.yaml")
    broker, controller = (node.service for node in spec.nodes)
    assert (broker.configuration_writer, broker.archive_sha512) == ("user", {"4.3.1": SHA512.lower()})
    assert (broker.host, broker.unit, broker.symlink) == ("kafka-1", "kafka-broker.service", "/srv/kafka")
    assert (controller.unit, controller.symlink) == ("kafka-controller.service", "/opt/kafka")
    assert (broker.managed_elsewhere, controller.managed_elsewhere) == (False, True)
    assert [(one.command, one.timeout_s) for one in controller.before_stop] == [("drain me", 5.0)]
    (tmp_path / "again.yaml").write_text(dump_cluster(spec))
    assert load_cluster(tmp_path / "again.yaml") == spec


@pytest.mark.parametrize(
    "file",
    ["/srv/kafka/config/server.properties", "/opt/kafka_2.13-3.9.1/config/x.properties", "/opt/kafka_2.13-4.0.0-rc1/x"],
)
def test_a_configuration_in_the_folder_of_a_release_is_refused(tmp_path: Path, file: str) -> None:
    path = tmp_path / "far.yaml"
    path.write_text(HOSTS.replace("  symlink: /srv/kafka\n", f"  symlink: /srv/kafka\n  configuration_file: {file}\n"))
    with pytest.raises(UserError, match=f"configuration_file {file} is in the folder of a release.* /etc/kafka"):
        load_cluster(path)
    for outside in ("/srv/kafka-etc/x", "/opt/kafka_2.13-etc/x", "/opt/etc/kafka_2.13-3.9.1/x"):
        path.write_text(path.read_text().replace(file, outside))
        assert load_cluster(path).nodes[0].service.configuration_file == outside
        file = outside


PACKAGE = """\
  package:
    install: [/usr/bin/env, DEBIAN_FRONTEND=noninteractive, /usr/bin/apt-get, install, -o,
      "Dpkg::Options::=--force-confold", "kafka={version}", --yes, --no-remove, --allow-downgrades]
    versions: {4.3.1: 8.3.1-1}
"""
PACKAGED = HOSTS.replace("  symlink: /srv/kafka\n", PACKAGE).replace(", symlink: /opt/kafka", "")


@pytest.mark.parametrize(
    ("user", "is_name"), [("svc.kafka", True), ("kafkaProd", True), ("KAFKA", False), ("a b", False)]
)
def test_a_user_of_a_directory_can_have_dots_and_capitals(user: str, *, is_name: bool) -> None:
    if is_name:
        assert ServiceEntry(user=user).user == user
        return
    with pytest.raises(ValidationError):
        ServiceEntry(user=user)


def test_a_path_on_a_host_has_one_spelling() -> None:
    entry = ServiceEntry.model_validate(
        {"configuration_file": "/etc//kafka/./server.properties", "installation": "/opt//kafka_2.13-{release}"}
    )
    assert entry.configuration_file == "/etc/kafka/server.properties"
    assert entry.installation == "/opt/kafka_2.13-{release}"


def test_the_documented_packages_are_valid_and_the_first_one_is_that_of_the_test_bed() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", (PROJECT_ROOT / "docs" / "packages.md").read_text(), re.DOTALL)
    entries = [ServiceEntry.model_validate(yaml.safe_load(block)["service"]) for block in blocks]
    first, vendor = (service_of("kafka-1", [Role.BROKER], entry).package for entry in entries)
    assert first == TESTBED_PACKAGE
    assert vendor.version("3.9.1") == "7.9.1-1"


def test_a_package_is_read_and_written(tmp_path: Path) -> None:
    (tmp_path / "far.yaml").write_text(PACKAGED.replace("host: kafka-1, ", "host: kafka-9, "))
    with pytest.raises(UserError, match="host kafka-1 has two nodes and one package: a new release would change both"):
        load_cluster(tmp_path / "far.yaml")
    (tmp_path / "far.yaml").write_text(PACKAGED.replace("host: kafka-1", "host: kafka-9", 1))
    spec = load_cluster(tmp_path / "far.yaml")
    package = spec.nodes[0].service.package
    assert package.check == ()
    assert package.download == (*package.install[:4], "--download-only", "--reinstall", *package.install[4:])
    assert (package.jars, package.version("4.3.1"), package.version("3.9.1")) == (
        "/usr/share/java/kafka",
        "8.3.1-1",
        None,
    )
    (tmp_path / "again.yaml").write_text(dump_cluster(spec))
    assert load_cluster(tmp_path / "again.yaml") == spec


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        (
            "DEBIAN_FRONTEND=noninteractive, ",
            "",
            "apt-get can show a menu of debconf or ucf, which offers a root shell",
        ),
        ("noninteractive", "readline", "begin with /usr/bin/env DEBIAN_FRONTEND=noninteractive"),
        (
            "/usr/bin/env, DEBIAN",
            "env, DEBIAN",
            "env is not the absolute path of a program",
        ),
        ('"kafka={version}", --yes', "kafka, --yes", "does not contain {version}"),
        ("kafka={version}", "kafka={release}", "has a placeholder other than {version}"),
        ("kafka={version}", "kafka={version};reboot", "service.package.install[6] must be a word of letters"),
        ("8.3.1-1", '"8.3.1 -y"', "service.package.versions.4.3.1 must be the version of a package"),
        ("{4.3.1: ", "{latest: ", "latest"),
        ("  package:", "  symlink: /opt/kafka\n  package:", "package and symlink exclude each other"),
        (
            "-o,\n     ",
            "",
            "apt-get can ask about a changed configuration file, and the answer Z starts a root shell: add -o",
        ),
        ("--force-confold", "--force-confdef", "add -o Dpkg::Options::=--force-confold"),
        ('"kafka={version}",', '"./kafka={version}",', "`./kafka={version}` has a relative path or a URL"),
        ("-o,", "-o, Dir::Etc=etc/apt, -o,", "at service.package.install, `Dir::Etc=etc/apt` has a relative path"),
    ],
)
def test_a_wrong_package_is_one_sentence(tmp_path: Path, before: str, after: str, says: str) -> None:
    text = PACKAGED.replace("host: kafka-1", "host: kafka-9", 1)
    assert before in text
    (tmp_path / "far.yaml").write_text(text.replace(before, after, 1))
    with pytest.raises(UserError, match=re.escape(says)):
        load_cluster(tmp_path / "far.yaml")


def test_files_of_versions_need_the_versions() -> None:
    words = ["/usr/local/sbin/install", "--file=/srv/kafka-{version}.tar"]
    entry = {"install": words, "check": ["/bin/true", "{version}"]}
    assert PackageEntry.model_validate({**entry, "versions": {"4.3.1": "8.3.1-1"}}).install == tuple(words)
    with pytest.raises(ValidationError, match=re.escape("/srv/kafka-{version}.tar contains {version}, and a plan")):
        PackageEntry.model_validate(entry)


@pytest.mark.parametrize(
    ("words", "is_quiet"),
    [
        ("/usr/bin/dpkg --configure -a", False),
        ("/usr/bin/dpkg --force-confold --configure -a", True),
        ("/usr/bin/dpkg --force-confdef,confnew --configure -a", True),
        ("/usr/bin/dpkg --install /srv/kafka.deb --force-confold", False),
        ("/usr/bin/env apt-get --fix-broken install", False),
        ("/usr/bin/apt --fix-broken install -oDPkg::Options::=--force-confnew", False),
        ("/usr/bin/env DEBIAN_FRONTEND=noninteractive apt -f install -oDPkg::Options::=--force-confnew", True),
        ("/usr/bin/env UCF_FORCE_CONFFOLD=1 apt-get install --option=Dpkg::Options::=--force-confold", True),
        ("/usr/bin/apt-get --fix-broken install --force-confold", False),
        ("/usr/bin/apt-get --fix-broken install Dpkg::Options::=--force-confold", False),
        ("/usr/bin/apt-get --fix-broken --download-only install", True),
        ("/usr/bin/dnf --assumeyes distro-sync", True),
        ("/usr/local/sbin/repair", True),
    ],
)
def test_root_runs_dpkg_only_with_an_option_that_prevents_its_question(words: str, is_quiet: bool) -> None:
    given = {"install": ["/usr/local/sbin/install", "{version}"], "check": ["/bin/true", "{version}"]}
    entry = {**given, "repair": words.split()}
    if is_quiet:
        assert PackageEntry.model_validate(entry).repair == tuple(words.split())
        return
    with pytest.raises(
        ValidationError, match=r"starts a root shell: add (-o Dpkg|--force-confold right)|offers a root shell: begin"
    ):
        PackageEntry.model_validate(entry)


@pytest.mark.parametrize(
    ("before", "after", "says"),
    [
        ("controller: kafka-controller", "controller: kafka-broker", "nodes a and b are both kafka-broker.service on"),
        (", symlink: /opt/kafka", "", "nodes a and b on host kafka-1 have the same symlink, /srv/kafka"),
        (
            ", configuration_file: /etc/kafka/b.properties",
            "",
            "have the same configuration_file, /etc/kafka/",
        ),
        (", host: kafka-1}", "}", "node a needs a host, because its runtime is ssh_service"),
        ("{broker: kafka-broker, ", "{", "unit has no entry for the role broker"),
        ("symlink: /srv/kafka", "installation: /opt/kafka", "does not contain {release} exactly once"),
        ("symlink: /srv/kafka", "installation: '/opt/{release}/kafka'", "does not contain {release} in its last part"),
        ("symlink: /srv/kafka", "symlink: /srv/$(reboot)", "symlink"),
        ("broker: kafka-broker", "broker: -Hx.service", "unit"),
        ("symlink: /srv/kafka", "archive_sha512: {4.3.1: 0b2a}", "archive_sha512"),
        ("unit: {", "units: {", "service.units is not a key of an inventory"),
    ],
)
def test_a_wrong_service_is_one_sentence(tmp_path: Path, before: str, after: str, says: str) -> None:
    text = HOSTS.replace(before, after, 1)
    assert text != HOSTS
    (tmp_path / "far.yaml").write_text(text)
    with pytest.raises(UserError, match=re.escape(says)):
        load_cluster(tmp_path / "far.yaml")


@pytest.mark.parametrize(
    ("first", "second", "says"),
    [
        (
            "host: kafka-1, service: {symlink: /a}",
            "host: KAFKA-1., service: {symlink: /a}",
            "are both kafka.service on host kafka-1",
        ),
        (
            "host: a, jolokia_url: 'http://Agents:8778/j'",
            "host: b, jolokia_url: 'http://agents:8778/j/'",
            "jolokia_url",
        ),
        ("host: a, prometheus_url: 'http://k:1'", "host: b, prometheus_url: 'http://k:1/'", "the prometheus_url"),
        ("host: a, prometheus_url: 'http://[::1]:1'", "host: b, prometheus_url: 'http://[::1]:1'", ""),
        (
            "host: a, prometheus_url: 'http://[::1]:1'",
            "host: A, prometheus_url: 'http://[::1]:1'",
            "the prometheus_url",
        ),
    ],
)
def test_two_spellings_of_one_host_or_agent_are_one(tmp_path: Path, first: str, second: str, says: str) -> None:
    text = f"""
name: far
runtime: ssh_service
ssh_connection_id: kafka-hosts
nodes:
- {{id: 1, name: a, roles: [broker], broker_address: "k:9092", {first}}}
- {{id: 2, name: b, roles: [controller], controller_address: "k:9093", {second}}}
"""
    (tmp_path / "far.yaml").write_text(text)
    if says:
        with pytest.raises(UserError, match=says):
            load_cluster(tmp_path / "far.yaml")
    else:
        assert len(load_cluster(tmp_path / "far.yaml").nodes) == 2


def test_a_key_that_begins_like_one_of_ours_is_that_one(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_text(yaml.safe_dump(inventory(nodes=[node(hostname="kafka-1")])))
    with pytest.raises(UserError) as refused:
        load_cluster(path)
    assert refused.value.remedy == "Did you mean host?"


def test_an_inventory_in_another_encoding_is_saved_again(tmp_path: Path) -> None:
    path = tmp_path / "orders.yaml"
    path.write_bytes("name: orders # für Bestellungen".encode("latin-1"))
    with pytest.raises(UserError, match="is not UTF-8 text") as refused:
        load_cluster(path)
    assert refused.value.remedy == "Save it as UTF-8."


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        ({}, "always"),
        ({"four_eyes": True, "feature_approval": "where_needed"}, "where_needed"),
        ({"feature_approval": "always"}, "always"),
    ],
)
def test_a_change_of_features_needs_an_approval_unless_the_inventory_says_otherwise(
    tmp_path: Path, fields: dict[str, Any], policy: str
) -> None:
    spec = load_cluster(write(tmp_path, inventory(**fields)))
    assert spec.feature_approval == policy
    (tmp_path / "again.yaml").write_text(dump_cluster(spec))
    assert load_cluster(tmp_path / "again.yaml").feature_approval == policy
