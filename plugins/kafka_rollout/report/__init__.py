"""The report of a run as typed values.

Begin with:
- `run_report.RunReport`: the report of an upgrade
- `run_report.DowngradeReport`: the further values of a downgrade
- `run_report.FeatureReport`: the further values of a change of features
- `run_report.Outcome`: the result of a run in one word
- `run_report.event_form`: an event as the report shows it
- `page.pages.render_run`: the page of a report
"""
