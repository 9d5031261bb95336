"""The metadata log of stopped nodes, for experts: scan, snapshot, trim, install.

These commands read directories. They need neither a running cluster nor an inventory. Only `trim` and `install` change
the directory.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kafka_rollout.base.errors import RefusedError, UserError
from kafka_rollout.base.json_forms import to_json
from kafka_rollout.base.system.settings import Settings
from kafka_rollout.base.wording import nodes as nodes_of
from kafka_rollout.cli import show
from kafka_rollout.cli.options import AsJson, read_feature, read_level
from kafka_rollout.features.requests import parse_requests
from kafka_rollout.metadata_log.log_choice import choose_log
from kafka_rollout.metadata_log.losses import Loss, LossReport, with_paths
from kafka_rollout.metadata_log.metadata_scan import MetadataScan
from kafka_rollout.releases.facts import METADATA_VERSION, Release

if TYPE_CHECKING:
    from kafka_rollout.metadata_log.disk.folder import MetadataFolder
    from kafka_rollout.releases.jars.cache import ReleaseCache


_LARGE_MIB = 16

app = typer.Typer(help=__doc__, no_args_is_help=True)

LogDir = Annotated[
    Path,
    typer.Option("--log-dir", help="A node's metadata.log.dir, or a copy of its __cluster_metadata-0."),
]
ToLevel = Annotated[
    str, typer.Option("--to-level", help="The metadata.version to set, for example 25 or its name, 4.0-IV3.")
]
ClusterId = Annotated[
    str | None, typer.Option("--cluster-id", help="Expected cluster id; refuse if meta.properties has another id.")
]


@app.command("scan")
def scan(
    log_dir: LogDir,
    release: Annotated[
        str | None,
        typer.Option(
            "--release",
            help="The release that must start on this log. With --to-level: the one that would run at this level; "
            "default: the newest one whose highest level it is.",
        ),
    ] = None,
    to_level: Annotated[
        str | None,
        typer.Option(
            "--to-level", help="Show what would be lost at this metadata.version, for example 25 or its name, 4.0-IV3."
        ),
    ] = None,
    classes: Annotated[
        str | None,
        typer.Option(help="With --to-level: release whose Kafka classes compute the losses; default: the newest one."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="server.properties of the node, for the waiting times in the remedies and the paths of directories."
        ),
    ] = None,
    cluster_id: ClusterId = None,
    as_json: AsJson = False,
) -> None:
    """Check whether a node of a release can start on this metadata log, or show what a lower level loses. Read-only.

    With --release, exit code 3 if the node cannot start. With --to-level, the result is the metadata that would be lost
    at this metadata.version, and on the release that runs then. The loss includes ACLs about which the authorizer of
    that release decides otherwise.
    """
    from kafka_rollout.formats.files.server_properties import read_properties
    from kafka_rollout.metadata_log.classes.scanner import scan_metadata_log

    if to_level is not None:
        report = _losses(log_dir, to_level, release, classes, config, cluster_id)
        show.print_json(to_json(report)) if as_json else _print_losses(report)
        return
    if release is None:
        raise UserError(
            "A scan needs the release that must start on the log, or the level whose losses to show.",
            remedy="Add --release RELEASE or --to-level LEVEL.",
        )
    if classes is not None:
        raise UserError("--classes computes the losses at a level.", remedy="Add --to-level, or remove it.")
    folder, cache = _open(log_dir, cluster_id)
    found = scan_metadata_log(folder, _release(cache, release), cache=cache, settings=read_properties(config))
    show.print_json(found.to_dict()) if as_json else _print_scan(found)
    if found.failures:
        raise typer.Exit(RefusedError.exit_code)


def _losses(
    log_dir: Path, to_level: str, target: str | None, classes: str | None, config: Path | None, cluster_id: str | None
) -> LossReport:
    """Return what a lower level loses. `target`: the release that runs then. `classes`: the release that computes."""
    from kafka_rollout.formats.files.server_properties import directory_ids, read_properties
    from kafka_rollout.metadata_log.classes.snapshot import loss_report

    folder, cache = _open(log_dir, cluster_id)
    level, settings = read_level(to_level), read_properties(config)
    reader = _release(cache, target) if target is not None else _release_at(cache, level)
    report = loss_report(
        folder,
        level,
        cache=cache,
        release=_release(cache, classes),
        readers=() if reader is None else (reader,),
        settings=settings,
    )
    paths = directory_ids({"log.dirs": str(folder.root), **settings})
    return replace(report, losses=with_paths(report.losses, paths), default_only=with_paths(report.default_only, paths))


@app.command("snapshot")
def snapshot(
    log_dir: Annotated[
        list[Path],
        typer.Option(
            "--log-dir", help="metadata.log.dir of a stopped node, or a copy; repeat the option for every controller."
        ),
    ],
    to_level: ToLevel,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for the .checkpoint file. Existing files are not overwritten.")
    ],
    release: Annotated[
        str | None,
        typer.Option(help="The release that must be able to load the snapshot; default: the writer's release."),
    ] = None,
    feature: Annotated[
        list[str] | None,
        typer.Option(
            "--feature", metavar="NAME=LEVEL", help="Also lower this feature; level 0 deletes it; repeatable."
        ),
    ] = None,
    epoch: Annotated[
        int | None,
        typer.Option(
            help="Epoch of a snapshot of one directory that is not compared with others; default: above all epochs "
            "that a majority of the voters know."
        ),
    ] = None,
    cluster_id: ClusterId = None,
    as_json: AsJson = False,
) -> None:
    """Write a snapshot of the log that contains every committed record with Kafka's own classes, and check it.

    It chooses this log among those of the stopped nodes, which must be a majority of the voters. Only reads them. The
    file beside the snapshot, .origin.json, names the cluster and the end of the log. Copy it too: `metadata install`
    compares them.
    """
    from kafka_rollout.metadata_log.changes.snapshot_origin import SnapshotOrigin
    from kafka_rollout.metadata_log.classes.snapshot import write_snapshot

    opened = [_open(directory, cluster_id) for directory in log_dir]
    (folder, cache), level = opened[0], read_level(to_level)
    features = {one.feature: one.level for one in parse_requests(downgrades=map(read_feature, feature or ()))}
    choice = "One log, which is compared with no other."
    if epoch is None:
        folder, epoch, choice = _choose([one for one, _ in opened])
    elif len(opened) > 1:
        raise UserError("--epoch is for one directory.", remedy="Remove it: the logs that are compared give the epoch.")
    origin = SnapshotOrigin.of(folder)
    written = write_snapshot(
        folder,
        level,
        out,
        cache=cache,
        release=_release(cache),
        readers=() if release is None else (_release(cache, release),),
        features=features,
        epoch=epoch,
    )
    origin.write(Path(written.path))
    if as_json:
        show.print_json(written)
        return
    show.say(choice, show.err)
    _print_entries("lost", written.losses)
    show.err.print(
        f"{written.records} records at metadata.version {written.to_level}, kraft.version {written.kraft_version}; "
        f"loaded and compared by {', '.join(map(str, written.proved_by))}.",
        soft_wrap=True,
    )
    show.say(written.path)


@app.command("trim")
def trim_command(
    log_dir: LogDir,
    release: Annotated[
        str | None,
        typer.Option(help="The release that must start on the trimmed log. If it cannot, nothing is trimmed."),
    ] = None,
    undo: Annotated[bool, typer.Option("--undo", help="Restore the files that the newest trim removed.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the planned changes only.")] = False,
    cluster_id: ClusterId = None,
    as_json: AsJson = False,
) -> None:
    """Remove the part of a stopped node's metadata log that is older than its newest snapshot. Keeps a backup.

    After an interruption, repeat the command to finish the trim.
    """
    from kafka_rollout.metadata_log.changes.trimmer import plan_of, trim, undo_trim

    folder, cache = _open(log_dir, cluster_id)
    if dry_run:
        plan = plan_of(folder)
        if as_json:
            show.print_json({"dry_run": True, "trim": plan})
            return
        if plan is None:
            show.out.print("No change needed: the log already begins at its newest snapshot.")
            return
        show.out.print(
            f"The trimmed log would begin at offset {plan.start_offset}, before the snapshot {plan.snapshot}. The trim "
            f"would remove {show.as_text(', '.join(plan.removed))}.",
            soft_wrap=True,
        )
        return
    target = None if release is None else _release(cache, release)
    result = undo_trim(folder) if undo else trim(folder, release=target, cache=cache)
    show.print_json({"dry_run": False, "result": result}) if as_json else show.say(result.sentence)


@app.command("install")
def install_command(
    log_dir: LogDir,
    snapshot_file: Annotated[
        Path | None, typer.Option("--snapshot", help="The file that `metadata snapshot` wrote; not with --undo.")
    ] = None,
    release: Annotated[
        str | None,
        typer.Option("--release", help="The release that must start from this snapshot; not with --undo."),
    ] = None,
    undo: Annotated[
        bool,
        typer.Option(
            "--undo",
            help="Restore the files that the newest installation replaced. Refused if a broker has registered since.",
        ),
    ] = False,
    discard_later_records: Annotated[
        bool,
        typer.Option(
            "--discard-later-records", help="Install also if the node's log has records that the snapshot lacks."
        ),
    ] = False,
    cluster_id: ClusterId = None,
    as_json: AsJson = False,
) -> None:
    """Replace the whole metadata log of a stopped node by a snapshot. Keeps a backup.

    Stop all nodes of the cluster, and run this command on every node before you start the first one. After an
    interruption, repeat the command to finish.
    """
    from kafka_rollout.metadata_log.changes.install import install, lower_bootstrap, uninstall
    from kafka_rollout.metadata_log.changes.snapshot_origin import refuse_other_log
    from kafka_rollout.metadata_log.classes.kafka_classes import JvmKafkaClasses

    if undo:
        if snapshot_file or release or discard_later_records:
            raise UserError("--undo restores what was there before.", remedy="Remove the options of an installation.")
        sentence = uninstall(_open(log_dir, cluster_id)[0])
        show.print_json({"sentence": sentence}) if as_json else show.say(sentence)
        return
    if snapshot_file is None or release is None:
        raise UserError(
            "An installation needs a snapshot, and the release that must start from it.",
            remedy="Add --snapshot FILE and --release RELEASE, or --undo.",
        )
    folder, cache = _open(log_dir, cluster_id)
    target = _release(cache, release)
    level = JvmKafkaClasses(cache).load_checkpoint(target, snapshot_file).features[METADATA_VERSION]
    refuse_other_log(folder, snapshot_file, cluster_id=cluster_id, discards_records=discard_later_records)
    with tempfile.TemporaryDirectory(prefix="kafka-rollout-") as name:
        bootstrap = lower_bootstrap(folder, Path(name), level=level, target=target, cache=cache)
        sentence = install(folder, snapshot_file, bootstrap=bootstrap)
    show.print_json({"sentence": sentence}) if as_json else show.say(sentence)


def _choose(folders: Sequence[MetadataFolder]) -> tuple[MetadataFolder, int, str]:
    """Return the log of stopped nodes that contains every committed record, the epoch of its snapshot, and a sentence.

    Raises UserError for logs that do not belong together, RefusedError without a majority of the voters.
    """
    from kafka_rollout.metadata_log.disk.folder import node_log

    if len({folder.cluster_id for folder in folders}) > 1:
        clusters = "; ".join(f"{folder.root}: {folder.cluster_id or 'unknown'}" for folder in folders)
        raise UserError(f"These logs belong to different clusters ({clusters}).", remedy="Use the logs of one cluster.")
    nameless = [folder for folder in folders if folder.node_id is None]
    if nameless:
        raise UserError(
            f"There is no meta.properties next to {nameless[0].log}, so its node is unknown.",
            remedy="Copy meta.properties too, or set the --epoch of the snapshot of one directory.",
        )
    by_node: dict[int, MetadataFolder] = {}
    for folder in folders:
        other = by_node.setdefault(int(folder.node_id or 0), folder)
        if other.root != folder.root:
            raise UserError(
                f"{other.root} and {folder.root} are both of node {folder.node_id}.",
                remedy="Name the directory of each node once, without older copies of it.",
            )
    logs = [node_log(folder, node_id) for node_id, folder in by_node.items()]
    voters = max(logs, key=lambda log: (log.epoch, log.end_offset)).voters
    if not voters:
        raise UserError("None of these logs contains the voters of the quorum.", remedy="Use the logs of controllers.")
    chosen = choose_log(logs, voters, {})
    folder = by_node[chosen.node_id]
    sentence = (
        f"The log of node {chosen.node_id} in {folder.root} has every committed record: it ends at offset "
        f"{chosen.end_offset} in epoch {chosen.epoch}. Logs of {nodes_of(chosen.read)} compared, voters: "
        f"{nodes_of(chosen.voters)}. Epoch of the snapshot: {chosen.snapshot_epoch}."
    )
    return folder, chosen.snapshot_epoch, sentence


def _open(directory: Path, cluster_id: str | None) -> tuple[MetadataFolder, ReleaseCache]:
    """Open a metadata.log.dir, or a copy of its __cluster_metadata-0.

    Raises UserError if there is no log, it is damaged, or it belongs to another cluster than `cluster_id`.
    """
    from kafka_rollout.metadata_log.disk.folder import open_folder
    from kafka_rollout.releases.jars.cache import ReleaseCache

    folder = open_folder(directory, cluster_id=cluster_id)
    size = sum(path.stat().st_size for path in folder.segments) >> 20
    if size >= _LARGE_MIB:
        show.err.print(f"Reading {size} MiB of log: 0.5 to 2 s per MiB.")
    return folder, ReleaseCache.from_settings(Settings.from_environment())


def _release(cache: ReleaseCache, name: str | None = None) -> Release:
    """Return a release of the catalogue; without a name the newest. Raises UserError for an unknown release."""
    from kafka_rollout.metadata_log.classes.known_releases import known_releases, metadata_facts

    release = known_releases(*cache.catalogue_folders)[-1] if name is None else Release.parse(name)
    metadata_facts(release, *cache.catalogue_folders)
    return release


def _release_at(cache: ReleaseCache, level: int) -> Release | None:
    """Return the newest release whose highest metadata.version is `level`; None if there is none."""
    from kafka_rollout.releases.documents.catalogue import load_catalogue

    catalogue = load_catalogue(*cache.catalogue_folders)
    return max(
        (one for one in catalogue if catalogue.get(one).features[METADATA_VERSION].supported.max == level), default=None
    )


def _print_losses(report: LossReport) -> None:
    levels = f"{report.from_level} ({report.from_name}) to {report.to_level} ({report.to_name})"
    on = f", read by {', '.join(report.readers)}" if report.readers else ""
    show.out.print(f"metadata.version {levels}, by the classes of {report.release}{on}", soft_wrap=True)
    _print_entries("lost", report.losses)
    _print_entries("default only", report.default_only)
    for note in report.notes:
        show.say_marked("note", "yellow", note)
    if not report.losses:
        show.out.print("No loss of metadata.")


def _print_entries(title: str, entries: tuple[Loss, ...]) -> None:
    for loss in entries:
        show.say_marked(title, "red", loss.sentence)


def _print_scan(found: MetadataScan) -> None:
    show.out.print(
        f"{found.release}: {found.verdict}; {found.offsets_text}, a start begins at {found.starts_at}",
        soft_wrap=True,
    )
    for failure in found.failures:
        where = f"{failure.file}, offset {failure.offset}"
        show.say_marked("fails", "red", f"{where}: {failure.reason}")
        show.say(f"  by {failure.decided_by}")
    for remedy in found.remedies:
        show.say_marked("remedy", "green", remedy)
    for note in found.notes:
        show.say_marked("note", "yellow", note)
