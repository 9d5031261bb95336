"""A private home and database of Airflow for all tests of a process.

Airflow reads its settings when it is imported. `tests/conftest.py` imports this module first, so that no test's module,
whatever it imports and whichever is collected first, uses the database of the person who runs the tests.
"""

import os
import sys
import tempfile

from tests.paths import ROOT

if "airflow" in sys.modules:
    raise RuntimeError("Airflow was imported before the tests gave it a home of their own. Import it later.")

_HOME = tempfile.TemporaryDirectory(prefix="kafka-rollout-airflow-")
os.environ["AIRFLOW_HOME"] = _HOME.name
os.environ["AIRFLOW__CORE__LOAD_EXAMPLES"] = "False"
os.environ["AIRFLOW__CORE__DAGS_FOLDER"] = str(ROOT / "dags")
os.environ["AIRFLOW__CORE__PLUGINS_FOLDER"] = str(ROOT / "plugins")
os.environ["AIRFLOW__CORE__MIN_SERIALIZED_DAG_UPDATE_INTERVAL"] = "0"  # tests write one DAG id with several forms
os.environ["AIRFLOW__CORE__DAGBAG_IMPORT_TIMEOUT"] = "300"  # a busy machine; 30 seconds by default
