"""How much may be asked: rules, the counters that they are held against, and what clients are told.

Everything that is limited is one shape: what is *used* and what is *reserved* by requests that run
may not be more than the limit. What is used of a limit a minute drains steadily, what is used of a
budget stays until its period is over, and what runs at the same time is reserved and never used.
"""
