"""All modules that import Airflow: approvals, gates, operators, graphs and pages.

Outside: Airflow and its database.

Begin with:
- `graphs.all_clusters.all_dags`: the DAGs of all clusters
- `graphs.procedure.draw`: adds the tasks of a procedure to a DAG
- `graphs.forms.form_of`: the trigger form of a kind of run
- `operators.step.StepOperator`: a step of a procedure as a task
- `gates.batch_sensors.BatchGateSensor`: a gate of a batch, which begins and passes in the triggerer
- `operators.replace_batch.ReplaceOperator`: the replacement of a batch
- `approvals.asking.ask`: requests a decision from within a task
- `approvals.airflow_records.AirflowRecords`: compares approvals with Airflow's own records
- `sensors.kafka_cluster.ClusterSensor`: base of the sensors for everybody's DAGs, as are the modules with `PUBLIC`
- `views.app.app`: the paths of the page "Kafka rollout"
"""
