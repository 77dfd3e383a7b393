"""Streams that are relayed and looked through on their way: what is clean goes by as the bytes that
it came as, whichever client API's events they are."""
