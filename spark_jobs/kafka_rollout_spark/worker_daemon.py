"""The process from which Spark forks its Python workers; `spark.python.daemon.module`.

It imports the decoding before it forks. Workers collect garbage after every task, and with all that the decoding loads,
each collection would take 50 to 70 ms, as long as reading 60 MB: objects of the daemon are exempt from it.
"""

from __future__ import annotations

import gc

from kafka_rollout_spark.python_path import use_installed_modules

if __name__ == "__main__":
    use_installed_modules()

    from pyspark.daemon import manager

    import kafka_rollout_spark.decode
    import kafka_rollout_spark.merge.newest
    import kafka_rollout_spark.source  # noqa: F401

    gc.collect()
    gc.freeze()
    manager()
