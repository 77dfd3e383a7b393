"""The server's side of HTTP/1.1: from an accepted socket to an ASGI call, with a bound on all that
a client chooses; and of WebSockets, which a connection may become.

`listener` takes connections, `connection` reads requests from one, `exchange` is one request and
its answer, `websocket` is a connection that was upgraded, `clock` ends what takes too long,
`limits` says how much that is, `state` is what all connections share.
"""
