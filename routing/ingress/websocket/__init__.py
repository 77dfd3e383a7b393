"""The Responses API over a WebSocket: `offer` says who may open one, `session` has each message of
a client answered as a request is, `frames` sends the answers."""
