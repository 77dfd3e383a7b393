"""Which servers are compatible: started here, asked by the tests, and written down.

`python -m scripts.conformance` starts each of the servers, asks it by `pytest tests/integration
--base-url` and, where there is a checkout of it, by the suite of Open Responses, and writes what
they found to `tests/integration/results/conformance.json`. `scripts.measured` makes the page of
that.
"""
