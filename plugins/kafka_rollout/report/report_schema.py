"""The JSON schema of report.json: `python -m kafka_rollout.report.report_schema > docs/run-report.schema.json`."""

from __future__ import annotations

import json
import sys

from kafka_rollout.base.json_forms import json_schema
from kafka_rollout.report.run_report import FORMAT, DowngradeReport, FeatureReport, RunReport

_HEAD = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": f"Report of a run, format {FORMAT}",
    "description": "Times: epoch seconds. Durations: seconds. The format is raised if a key is removed or renamed; "
    "keys can be added in one format.",
}


def schema_text() -> str:
    """Return the schema of the reports of all kinds of runs."""
    return json.dumps(_HEAD | json_schema(RunReport | DowngradeReport | FeatureReport), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(schema_text())
