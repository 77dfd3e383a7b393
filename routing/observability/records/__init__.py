"""One record a request: what it was, what it cost, and the tables that tell of it.

`record` says what is recorded, `recorder` brings it into the storage, `reports` and `export` read
it there; `estimate`, `prices` and `bodies` say how a column comes to be.
"""
