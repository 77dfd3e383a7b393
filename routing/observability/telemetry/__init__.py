"""Metrics for Prometheus and traces for OpenTelemetry, both made of the records of requests.

`semconv` has the names that are not ours; `grafana.json` is a dashboard.
"""
