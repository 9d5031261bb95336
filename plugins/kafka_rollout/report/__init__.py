"""The report of a run and of a check as typed values: built from history and cluster, compared, as a page.

Begin with:
- `run_report.RunReport`: the report of an upgrade
- `run_report.DowngradeReport`: the further values of a downgrade
- `run_report.FeatureReport`: the further values of a change of features
- `run_report.Outcome`: the result of a run in one word
- `builders.build_report`: builds the report of an upgrade
- `check_registry.CHECKS`: all checks
- `check_registry.check_release`: runs the checks for a change to a release
- `check_report.ClusterCheckReport`: the result
- `run_report.event_form`: an event as the report shows it
- `page.pages.render_run`: the page of a report
"""
