"""The event log, the closed list of metric names, and the followers that feed MLflow and Prometheus."""
