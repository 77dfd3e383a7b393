"""Other people's clients and suites, run against a server: each module is a script."""
