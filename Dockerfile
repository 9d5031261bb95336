# Airflow with kafka-rollout in it. The tag names the same Airflow as the lock (a test compares them). Replace it
# by the digest that your registry reports for this tag, so that a changed tag cannot change your image.
FROM apache/airflow:3.3.2-python3.11

# What the wheel needs, and no tool of its developers.
COPY requirements-image.txt /opt/kafka-rollout/
# setuptools first: pyspark comes as source, and what builds it shall be locked as well.
RUN cd /opt/kafka-rollout \
 && uv pip install --no-cache --require-hashes --constraint requirements-image.txt setuptools==80.9.0 \
 && uv pip install --no-cache --require-hashes --no-build-isolation --requirement requirements-image.txt

COPY pyproject.toml /opt/kafka-rollout/
COPY setup.py /opt/kafka-rollout/
COPY README.md /opt/kafka-rollout/
COPY LICENSE /opt/kafka-rollout/
COPY plugins /opt/kafka-rollout/plugins
COPY spark_jobs /opt/kafka-rollout/spark_jobs
COPY dags /opt/kafka-rollout/dags
COPY include /opt/kafka-rollout/include
# Tasks run as airflow, and cannot change the DAG files and facts that root owns. A build writes into its folder.
RUN cp -r /opt/kafka-rollout /tmp/kafka-rollout \
 && uv pip install --no-cache --no-deps --no-build-isolation /tmp/kafka-rollout \
 && rm -rf /tmp/kafka-rollout

# Mount the inventories over KAFKA_ROLLOUT_CLUSTERS, and volumes over the other two: a new volume gets owner and mode of
# the folder of the image, or belongs to root if there is none.
RUN mkdir -m 0770 /opt/airflow/kafka-rollout /opt/airflow/kafka-rollout-cache
ENV AIRFLOW__CORE__DAGS_FOLDER=/opt/kafka-rollout/dags \
    AIRFLOW__CORE__LOAD_EXAMPLES=False \
    KAFKA_ROLLOUT_CLUSTERS=/opt/kafka-rollout/include/clusters \
    KAFKA_ROLLOUT_HOME=/opt/airflow/kafka-rollout \
    KAFKA_ROLLOUT_CACHE=/opt/airflow/kafka-rollout-cache
