"""What gateways share that serve one template. No request waits for any of it.

A gateway tells the others once a second how it is, and hears of them; what can't wait for that, as
that a target is left alone, is sent to all at once. Limits and keys, which requests do ask about,
are in `routing.access`.
"""
