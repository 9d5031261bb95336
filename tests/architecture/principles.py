"""The principles of evidence: what holds, where the code keeps it, and the test that fails without it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Principle:
    """`places`: `path below plugins/kafka_rollout:name`. `tests`: path below tests, with `::name` of a test."""

    kind: str
    holds: str
    places: tuple[str, ...]
    tests: tuple[str, ...]


def _of(kind: str, holds: str, places: str, tests: str) -> Principle:
    return Principle(kind=kind, holds=holds, places=tuple(places.split()), tests=tuple(tests.split()))


ABSENCE = "Absence is not evidence"
MEANING = "Meaning, not text"
START = "What a node reads at its start"
BETWEEN = "What must agree between nodes"
HALF = "Files between two states"
TRUST = "Who could have written it"
PRINCIPLES = (
    _of(
        ABSENCE,
        "A condition of a gate is met by something that was seen. An id that is gone needs the finished load of its "
        "partition, or the broker's own counter.",
        "gates/coordinators.py:coordinators_condition gates/remote_storage.py:check_tiered_storage",
        "unit/gates/test_coordinators.py unit/gates/test_remote_storage.py",
    ),
    _of(
        ABSENCE,
        "A text of a client proves nothing: one module concludes from lines of logs, and one reads them for the steps.",
        "model/node_log.py observation/node_logs.py",
        "architecture/test_node_logs.py unit/model/test_node_log.py",
    ),
    _of(
        ABSENCE,
        "The log of a process begins at a time or an offset that the run knows, never at a line.",
        "nodes/runtimes/log_files.py nodes/runtimes/hosts/logs.py",
        "unit/nodes/runtimes/test_log_files.py",
    ),
    _of(
        ABSENCE,
        "What is read of a path is that of the file behind a link: size, list and content.",
        "nodes/runtimes/hosts/rights.py",
        "unit/nodes/runtimes/test_host_rights.py::"
        "test_what_is_read_of_a_link_is_what_is_read_of_the_file_or_directory_behind_it",
    ),
    _of(
        ABSENCE,
        "A release is on a host if all jars of its broker are there, whole, and of no other release.",
        "nodes/runtimes/hosts/release_folders.py:why_not_installed",
        "unit/nodes/runtimes/test_release_folders.py",
    ),
    _of(
        ABSENCE,
        "What is approved is what was read, part by part. An answer that was given before the text existed accepts "
        "nothing that can hide a blocker.",
        "base/findings.py:find_new cli/answers.py:TerminalAnswers model/plan.py:Plan",
        "architecture/test_approved.py unit/cli/test_upgrade.py",
    ),
    _of(
        ABSENCE,
        "A shortened text hides nothing of another kind, and stands for exactly what it leaves out.",
        "procedure/approval_requests.py:differences_body model/contents.py:in_order",
        "unit/preparation/test_state_comparison.py unit/model/test_contents.py",
    ),
    _of(
        ABSENCE,
        "What a summary merges is no evidence about a moment: a merged sample of the test traffic has "
        "acknowledgements all the time, or none.",
        "run/traffic.py:condense",
        "unit/run/test_traffic_series.py",
    ),
    _of(
        ABSENCE,
        "What a rollback leaves out is read before its approval.",
        "roll/stop.py:unread_of_rollback procedure/approval_requests.py:rollback_part",
        "unit/preparation/test_unknowns.py unit/cli/test_app.py",
    ),
    _of(
        ABSENCE,
        "An error that no repetition cures is refused with its remedy. What is tried again passes by itself.",
        "nodes/runtimes/hosts/commands.py:unusable base/system/http.py:can_pass client/requests.py:TRANSIENT_ERRORS",
        "architecture/test_transient.py",
    ),
    _of(
        ABSENCE,
        "An error that was seen stays in the history. A doubtful one becomes the decision of an approver.",
        "run/step_events.py:LogSeen gates/gate.py:GateCondition",
        "unit/observation/test_node_logs.py",
    ),
    _of(
        ABSENCE,
        "Expected errors are counted. One expected error excuses no other.",
        "gates/counters.py",
        "unit/gates/test_counters.py",
    ),
    _of(
        ABSENCE,
        "A node that one source names, and that does not respond, is a finding. It is waited for once.",
        "clusters/discovery.py:merge client/requests.py:SilentNodes",
        "unit/clusters/test_discovery.py unit/client/test_requests.py integration/check/test_silent_nodes.py",
    ),
    _of(
        ABSENCE,
        "A check says what it needs. A missing response makes unknown only the checks that need it, and the exit code "
        "shows it.",
        "base/findings.py:Check planning/plan_checks.py:unknown_responses report/check_report.py:ClusterCheckReport",
        "unit/planning/test_unknown_values.py unit/report/test_check_report.py",
    ),
    _of(
        ABSENCE,
        "What is true of the cluster is read from a current broker.",
        "observation/cluster_ports.py:read_current_levels",
        "architecture/test_current_brokers.py",
    ),
    _of(
        ABSENCE,
        "A level that no node reports is unknown, and not 0.",
        "model/finalized_levels.py:FinalizedLevels",
        "architecture/test_finalized_levels.py unit/feature_updates/test_unknown_levels.py",
    ),
    _of(
        ABSENCE,
        "A known defect applies, does not apply, or is unknown on this cluster. What code of others decides is unknown "
        "and does not block. A release is reviewed only by the sources that a person read for it.",
        "planning/findings/advisories.py releases/conditions.py releases/facts.py:Review",
        "unit/planning/findings/test_advisories.py",
    ),
    _of(
        ABSENCE,
        "What a process registered is observed before the process is restarted for it. Unknown is not complete.",
        "observation/node_registrations.py:registration_is_complete planning/registration.py",
        "unit/roll/test_registration.py",
    ),
    _of(
        ABSENCE,
        "Each text that an approver reads lists what a plan could not check.",
        "procedure/approval_requests.py:findings_part model/plan.py:Plan",
        "unit/procedure/test_unknown_checks.py",
    ),
    _of(
        ABSENCE,
        "What a missing right hides is unknown: users of a feature, groups, partitions.",
        "features/rules.py",
        "unit/features/test_users.py",
    ),
    _of(
        ABSENCE,
        "What the leader's own process decides is read from each broker that can lead.",
        "client/contents.py:MinIsrValues",
        "unit/client/test_min_isr.py architecture/test_min_isr.py",
    ),
    _of(
        ABSENCE,
        "A lost record of the state before a run counts as a difference. What no approver accepted is open in every "
        "later run, whose state before lacks it already, until an approver accepts it by name.",
        "preparation/state_comparison.py preparation/earlier_runs.py run/left_open.py:find_left_open",
        "unit/preparation/test_state_comparison.py unit/preparation/test_earlier_runs.py",
    ),
    _of(
        ABSENCE,
        "An undo restores only what this run replaced.",
        "metadata_log/changes/install.py",
        "unit/metadata_log/changes/test_install.py",
    ),
    _of(
        ABSENCE,
        "What a run ended as needs what its history proves, not what is observed alone.",
        "run/proofs.py report/builders.py",
        "unit/report/test_broken_off.py",
    ),
    _of(
        ABSENCE,
        "What was acknowledged must be in the log after the change, by its id, and before each step that "
        "cannot be undone. A node step in which the traffic, or its broker, acknowledged nothing is not proved.",
        "traffic/traffic_check.py:compare run/projections/nodes.py:cover_node_steps preparation/proved_traffic.py",
        "architecture/test_covered_traffic.py unit/traffic/processes/test_traffic.py "
        "unit/traffic/processes/test_samples.py unit/preparation/test_proved_traffic.py",
    ),
    _of(
        ABSENCE,
        "A comparison while writers go on has a cut.",
        "traffic/processes/main.py",
        "unit/traffic/processes/test_check.py",
    ),
    _of(
        ABSENCE,
        "A node is back where it was seen to have read what it missed.",
        "run/projections/nodes.py:behind_s",
        "unit/run/test_projections.py",
    ),
    _of(
        ABSENCE,
        "A gate waits by what was added to a reading, and passes by a whole one.",
        "roll/gate_checks.py:check_conversion",
        "unit/groups/reading/test_repeated_reading.py",
    ),
    _of(
        ABSENCE,
        "What an error leads to follows from whether what was seen lasts.",
        "gates/gate.py:GateCondition preparation/proved_roll.py",
        "unit/preparation/test_proved_roll.py",
    ),
    _of(
        ABSENCE,
        "A log proves nothing before its end is read.",
        "model/node_log.py:SeenLog",
        "unit/observation/test_node_logs.py",
    ),
    _of(
        ABSENCE,
        "An installation is known by what it left, not by its exit code. What fails in every installation "
        "is asked before the stop.",
        "nodes/runtimes/hosts/package_states.py",
        "unit/nodes/runtimes/test_package_states.py unit/nodes/runtimes/test_packages.py",
    ),
    _of(
        ABSENCE,
        "What must be written after a stop is written once before it.",
        "nodes/runtimes/hosts/records.py",
        "unit/nodes/runtimes/test_records.py",
    ),
    _of(
        ABSENCE,
        "A process serves another question only if it is as it began. One that ended has not answered.",
        "releases/jvm/jvm.py",
        "integration/metadata_log/test_kept_processes.py",
    ),
    _of(
        ABSENCE,
        "What a run writes on a host is decided by the function that installs.",
        "nodes/runtimes/hosts/written_folders.py",
        "unit/nodes/runtimes/test_read_only.py",
    ),
    _of(
        ABSENCE,
        "A node is stopped if no process in the control group of its unit can be Kafka, whatever systemd says.",
        "nodes/runtimes/hosts/unit_processes.py",
        "unit/nodes/runtimes/test_unit_processes.py",
    ),
    _of(
        ABSENCE,
        "A command of a stop has a form that is known to reach its own unit alone, or it can reach every Kafka that "
        "runs on the host, also those of other clusters. This is decided again before each stop.",
        "model/signals.py model/unit_stops.py nodes/runtimes/hosts/unit_stops.py",
        "unit/model/test_unit_stops.py unit/nodes/runtimes/test_unit_stops.py",
    ),
    _of(
        MEANING,
        "Equal ACLs are compared by what the authorizer of each release decides.",
        "metadata_log/classes/authorizers.py preparation/acl_meaning.py",
        "integration/metadata_log/test_meaning_of_metadata.py unit/preparation/test_acl_meaning.py",
    ),
    _of(
        MEANING,
        "What an older release does not keep is named before that release runs, and before the upgrade whose rollback "
        "would lose it. It is read again before each step that loses it, and so is what stops an upgrade.",
        "preparation/replayed_metadata.py preparation/lost_metadata.py",
        "unit/preparation/test_replayed_metadata.py unit/preparation/test_lost_metadata.py unit/roll/test_rollback.py",
    ),
    _of(
        MEANING,
        "A release must refuse wrong credentials, shown beside right ones that it accepts.",
        "metadata_log/classes/authentication.py",
        "integration/metadata_log/test_authentication_probes.py",
    ),
    _of(
        MEANING,
        "The effects of new settings come from the jars.",
        "planning/findings/new_settings.py",
        "unit/planning/findings/test_new_settings.py",
    ),
    _of(
        MEANING,
        "A defect of topics, groups and transactions, and what a release does with remote records, is decided by the "
        "values in effect, again before each stop.",
        "planning/findings/advisories.py:changing_defects planning/findings/dynamic_configs.py:tiered_storage_findings "
        "preparation/node_checks.py:recheck_dynamic_configs",
        "unit/planning/findings/test_advisories.py unit/preparation/test_dynamic_configs.py",
    ),
    _of(
        MEANING,
        "A remedy is a command that Kafka offers in this state.",
        "lowering/ordered_start.py",
        "integration/downgrade/test_value_without_brokers.py",
    ),
    _of(
        MEANING,
        "A path on a host has one spelling in inventory, sudoers file, check and command.",
        "base/host_paths.py:one_spelling model/log_directories.py",
        "architecture/test_log_directories.py unit/nodes/runtimes/test_spellings.py",
    ),
    _of(
        MEANING,
        "Two values of a setting are compared by the type that the release gives it.",
        "model/config_values.py:same_value",
        "architecture/test_config_values.py",
    ),
    _of(
        MEANING,
        "A package is tried by the user, lists and words that install it, and a rollback by a transfer.",
        "model/package_managers.py:download_again_of nodes/runtimes/hosts/installing.py",
        "unit/nodes/runtimes/test_package_trials.py unit/clusters/test_package_managers.py",
    ),
    _of(
        MEANING,
        "What clients delete counts only where no client can act.",
        "preparation/state_comparison.py:compare_with_state",
        "unit/preparation/test_contents_of_downgrades.py",
    ),
    _of(
        MEANING,
        "A condition is compared where the first node can show it.",
        "roll/log_starts.py:check_log_starts",
        "unit/roll/test_log_starts.py",
    ),
    _of(
        START,
        "A file is judged only if Kafka reads it, and by the classes that will read it.",
        "model/starts.py:named_files model/listeners.py:Listener metadata_log/classes/start_files.py "
        "preparation/next_starts.py",
        "unit/model/test_starts.py integration/metadata_log/test_start_files.py",
    ),
    _of(
        START,
        "A node starts with the lines that its plan has judged: an installation sets those of its release, and nothing "
        "else.",
        "nodes/runtimes/properties.py:configuration_for observation/node_steps.py:install_release",
        "unit/nodes/runtimes/test_local_process.py unit/formats/files/test_server_properties.py",
    ),
    _of(
        START,
        "A node starts with its file and the command line that its unit has now; the process is the second witness.",
        "nodes/runtimes/hosts/unit_state.py:read_overrides nodes/runtimes/hosts/overrides.py:next_overrides",
        "unit/nodes/runtimes/test_service.py unit/nodes/runtimes/test_overrides.py",
    ),
    _of(
        START,
        "The unit that systemd has loaded is compared with the files that it would read.",
        "nodes/runtimes/hosts/loaded_files.py",
        "unit/nodes/runtimes/test_loaded_files.py",
    ),
    _of(
        START,
        "A path below a mount of the unit's own is not the file that the tool reads.",
        "nodes/runtimes/hosts/unit_mounts.py planning/findings/unit_mounts.py",
        "unit/nodes/runtimes/test_unit_mounts.py unit/planning/findings/test_unit_mounts.py",
    ),
    _of(
        START,
        "A unit's environment is read as systemd and the start script read it.",
        "nodes/runtimes/hosts/unit_environment.py",
        "unit/nodes/runtimes/test_unit_environment.py",
    ),
    _of(
        START,
        "Where a path of the next start leads after the switch is followed on the host. A file that has not changed "
        "shows nothing.",
        "nodes/runtimes/start_files.py:all_start_paths planning/findings/start_paths.py:fate_of",
        "architecture/test_start_paths.py unit/nodes/runtimes/test_start_paths.py",
    ),
    _of(
        START,
        "Whether a start can enter, read or execute a file is asked for the user of the unit, not for the SSH user.",
        "nodes/runtimes/hosts/user_access.py:read_access model/file_access.py:access_of",
        "architecture/test_start_paths.py unit/nodes/runtimes/test_release_folders.py unit/model/test_file_access.py",
    ),
    _of(
        START,
        "An option of a process counts for the next start only if the environment, or a script that stays or is in the "
        "next release, has it.",
        "nodes/runtimes/hosts/option_sources.py planning/findings/jvm_options.py planning/findings/logging_files.py",
        "architecture/test_start_paths.py unit/nodes/runtimes/test_option_sources.py "
        "unit/nodes/runtimes/test_logging_files.py",
    ),
    _of(
        START,
        "A line of a start script that is not one of Kafka's can do anything: each one that the next release drops is "
        "shown to an approver.",
        "nodes/runtimes/hosts/option_sources.py planning/findings/start_scripts.py releases/start_scripts.py",
        "unit/nodes/runtimes/test_option_sources.py unit/derivation/test_start_scripts.py",
    ),
    _of(
        START,
        "A class of others is judged by the jars of the node. No remedy removes an authorizer.",
        "planning/findings/starts.py model/starts.py:KEEP_AUTHORIZER",
        "unit/planning/findings/test_starts.py",
    ),
    _of(
        START,
        "The options of a node are tried by the node's own Java, which also has a newest version.",
        "releases/jvm/java.py:harmless_options planning/findings/configuration.py:java_maximum_findings",
        "unit/nodes/runtimes/test_node_starts.py unit/planning/findings/test_java.py",
    ),
    _of(
        START,
        "What changed on disk since the start is in each run that restarts the node.",
        "planning/findings/pending.py",
        "unit/planning/findings/test_pending_files.py",
    ),
    _of(
        START,
        "What a listener presents is judged in a handshake: of the running listener, and of the stores of its files.",
        "client/certificates.py metadata_log/classes/tls.py:presented_alias",
        "unit/client/test_certificates.py integration/metadata_log/test_start_files.py",
    ),
    _of(
        START,
        "A level is finalized only if the release that the next start of each node runs supports it.",
        "features/support.py:next_start_findings features/rules.py:check_requests",
        "unit/features/test_rules.py unit/feature_updates/test_update.py",
    ),
    _of(
        START,
        "A node that runs shows nothing about what only a start reads: names in log directories are judged each time.",
        "formats/log_files.py:parse_folder preparation/node_checks.py:check_log_folders",
        "unit/preparation/test_log_folders.py integration/metadata_log/test_kafka_classes.py",
    ),
    _of(
        START,
        "A file that an installation replaces has the content of its package.",
        "nodes/runtimes/hosts/package_paths.py:find_edited",
        "architecture/test_start_paths.py unit/nodes/runtimes/test_package_paths.py",
    ),
    _of(
        BETWEEN,
        "A value that must agree between nodes is compared between nodes, or has a reason why not. An address is wrong "
        "only where another controller is.",
        "planning/findings/agreement.py:BETWEEN_NODES planning/findings/agreement.py:PER_NODE "
        "model/quorum_addresses.py:Address",
        "unit/planning/findings/test_agreement.py",
    ),
    _of(
        BETWEEN,
        "A replica of the quorum is a node id and a directory id, and is back as what it was before its stop.",
        "model/state.py:QuorumState gates/gate.py:BeforeStop",
        "unit/gates/test_node.py",
    ),
    _of(
        BETWEEN,
        "Voters, not a level, show whether a quorum is dynamic. A vote counts by node id and directory id.",
        "model/state.py:QuorumState metadata_log/log_choice.py",
        "unit/planning/findings/test_agreement.py unit/metadata_log/test_log_choice.py",
    ),
    _of(
        BETWEEN,
        "An address of a voter is proved by another than its owner.",
        "planning/findings/agreement.py:agreement_findings",
        "unit/planning/findings/test_agreement.py",
    ),
    _of(
        BETWEEN,
        "Of several inventory files for one cluster, none is used.",
        "clusters/inventory.py:list_readable_clusters",
        "unit/clusters/test_inventory.py",
    ),
    _of(
        BETWEEN,
        "A setting with which a gate cannot pass is named before the first stop.",
        "planning/findings/unreachable.py",
        "unit/planning/findings/test_unreachable.py",
    ),
    _of(
        BETWEEN,
        "A command of the operator after a start can wait for other nodes: nodes that start together are all started "
        "before one runs.",
        "observation/node_starts.py:starting",
        "architecture/test_node_starts.py unit/lowering/test_commands.py unit/roll/test_after_start.py",
    ),
    _of(
        HALF,
        "Segments and checkpoints are read as strictly as Kafka reads them, also between two renames.",
        "formats/log_files.py formats/checkpoint_files.py",
        "integration/coordinator_logs/test_log_loader_oracle.py architecture/test_log_files.py",
    ),
    _of(
        TRUST,
        "A Python child runs no code of the current folder.",
        "base/system/python.py",
        "architecture/test_child_processes.py",
    ),
    _of(
        TRUST,
        "Credentials go to the server that was configured, and to no other.",
        "base/system/http.py",
        "architecture/test_http.py",
    ),
    _of(
        TRUST,
        "Who answers is checked where the answer is recorded, and Airflow's record of this request alone approves.",
        "control/approval.py:refuse_answer airflow/approvals/airflow_records.py:AirflowRecords",
        "architecture/test_answers.py dags/runs/test_answers.py",
    ),
    _of(
        TRUST,
        "What a gate rests on is proved where the gate passes, also in the triggerer. The answer in Airflow names the "
        "digest of the text that it is about.",
        "control/approval.py:accepted_doubts airflow/gates/trigger_ports.py airflow/approvals/airflow_records.py",
        "architecture/test_answers.py dags/runs/test_accepted_text.py",
    ),
    _of(
        TRUST,
        "No event of the history excuses the comparison of an approval before a stop.",
        "roll/loop.py",
        "unit/roll/test_approvals_between.py dags/runs/test_answers.py",
    ),
    _of(
        TRUST,
        "What cannot be undone proves by the history what it needs, and by an observation of now what no history has: "
        "every running node, whichever run started it. A task that was marked proves nothing.",
        "preparation/proved_roll.py:refuse_unproved_nodes roll/loop.py",
        "unit/preparation/test_proved_roll.py dags/runs/test_marked.py",
    ),
    _of(
        TRUST,
        "A template of an alert sees the alert alone, once.",
        "base/system/alert_texts.py",
        "architecture/test_templates.py",
    ),
    _of(
        TRUST,
        "A file in a folder of another user is opened without following a link and without truncation.",
        "base/system/files.py:open_below",
        "architecture/test_files_of_others.py",
    ),
    _of(
        TRUST,
        "A right on a host that the tool did not print is excess.",
        "nodes/runtimes/hosts/rights.py:excess_rights",
        "unit/nodes/runtimes/test_host_rights.py",
    ),
    _of(
        TRUST,
        "A command that the inventory names contains no credential, and no error quotes it.",
        "clusters/entries.py:find_credential_argument",
        "unit/clusters/test_condition_entries.py unit/nodes/runtimes/test_service.py",
    ),
    _of(
        TRUST,
        "The lock lives where the thing lives: a run shows on the hosts that it changes, whatever database it has, to "
        "each run with the same SSH user. Of two that write at the same time, each sees the other.",
        "control/claims.py control/lock.py:fence_cluster_ports",
        "architecture/test_fences.py unit/control/test_claims.py",
    ),
    _of(
        TRUST,
        "A file that others name is opened without waiting, and their JSON is read by one function.",
        "base/system/files.py:open_regular base/json_forms.py:parse_json",
        "architecture/test_read_files.py",
    ),
    _of(
        TRUST,
        "In a graph of others, a run begins only after the tasks before it.",
        "airflow/common/base.py:skip_unless_begun",
        "dags/runs/test_embedded.py",
    ),
    _of(
        TRUST,
        "No thread that all DAGs and users of Airflow share waits for this project's database, clusters or hosts.",
        "airflow/common/outbox.py:Outbox airflow/own_threads.py:OwnThreads",
        "architecture/test_shared_processes.py dags/test_outbox.py",
    ),
)
