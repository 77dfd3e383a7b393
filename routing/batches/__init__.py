"""Work that can wait: the files that clients upload, and the batches that are made of them.

Nothing here knows of HTTP. `worker` works on what `journal` has, by a `run` for each batch;
`command` is the same without a server.
"""
