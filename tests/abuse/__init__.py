"""What a client, a vendor or a process may do wrong on purpose, and what it must not lead to.

Every test abuses a real server process from outside, while `watch` looks at the same server with
another client's eyes: how long `/health` takes, and how much memory the process comes to hold.
What takes long is marked `lengthy` and runs with `--abuse`, as `make abuse` does.
"""
