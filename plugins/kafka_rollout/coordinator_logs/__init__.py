"""The scan of coordinator logs: verdicts, findings, remedies and comparison (KIP-915).

Begin with:
- `scan.ScanRequest`: what to scan: a cluster, or log directories
- `scan.ScanResult`: the result of a scan
- `spark.submit.scan_command`: starts the Spark job of a scan
- `verdicts.evaluate_records`: decides for each release whether its coordinator loads a partition
- `contents.GroupInventory`: the groups and transactional ids of the logs
- `incompatible_records.find_incompatible_records`: the records that stop a release or that it ignores
- `remedies.find_remedies`: the actions that make the logs loadable for a release
- `findings.LOGS_CHECK`: what a plan finds in the logs
- `comparison.compare`: the changes from one scan to the next
- `page.report.render_scan`: the page of a scan
"""
