"""Which target gets a request, and what becomes of it when one fails.

What decides is pure: it is told the time, and keeps counters. `dispatch` alone waits and asks.
"""
