# Airflow with kafka-rollout in it. The tag names the same Airflow as requirements.txt (a test holds them together).
FROM apache/airflow:3.3.2-python3.11

COPY --chown=airflow:0 requirements.txt /opt/kafka-rollout/
# setuptools first: pyspark comes as source, and what builds it shall be locked as well.
RUN cd /opt/kafka-rollout \
 && uv pip install --no-cache --require-hashes --constraint requirements.txt setuptools==80.9.0 \
 && uv pip install --no-cache --require-hashes --no-build-isolation --requirement requirements.txt

COPY --chown=airflow:0 pyproject.toml /opt/kafka-rollout/
COPY --chown=airflow:0 setup.py /opt/kafka-rollout/
COPY --chown=airflow:0 README.md /opt/kafka-rollout/
COPY --chown=airflow:0 LICENSE /opt/kafka-rollout/
COPY --chown=airflow:0 plugins /opt/kafka-rollout/plugins
COPY --chown=airflow:0 spark_jobs /opt/kafka-rollout/spark_jobs
COPY --chown=airflow:0 dags /opt/kafka-rollout/dags
COPY --chown=airflow:0 include /opt/kafka-rollout/include
RUN uv pip install --no-cache --no-deps --no-build-isolation /opt/kafka-rollout

# Mount the inventories over KAFKA_ROLLOUT_CLUSTERS, and volumes over the other two.
ENV AIRFLOW__CORE__DAGS_FOLDER=/opt/kafka-rollout/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    KAFKA_ROLLOUT_CLUSTERS=/opt/kafka-rollout/include/clusters \
    KAFKA_ROLLOUT_HOME=/opt/airflow/kafka-rollout \
    KAFKA_ROLLOUT_CACHE=/opt/airflow/kafka-rollout-cache
