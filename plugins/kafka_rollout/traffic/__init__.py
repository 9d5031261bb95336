"""Test traffic and its check.

Begin with:
- `processes.of_run.start_traffic`: starts the test traffic of a run
- `processes.of_run.stop_traffic`: stops it and compares
- `processes.of_run.start_group_monitor`: starts the group monitor
- `processes.of_run.BackgroundControl`: controls a background process through the database
- `processes.main.Traffic`: the clients of one traffic period
- `processes.traffic.compare_journals`: compares the journals of a traffic period
- `processes.traffic.read_log`: reads the whole log again at the end
- `traffic_check.compare`: compares acknowledged records with those that consumers received, and with the log
"""
