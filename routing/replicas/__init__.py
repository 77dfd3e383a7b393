"""Engines as replicas on a Ray cluster: each is this server with one model, which Ray Serve places,
restarts and scales. The gateway asks them directly; nothing here imports Ray but `deployer`, which
is a process of its own, and `replica`, which runs in the cluster."""
