"""The batch APIs of vendors: many requests handed over at once, and answered within a day or so, at
another price. `base` says what each has, the other modules are the vendors' own.

Nothing here knows where lines come from and where their answers go: `routing.batches.vendors` does.
"""
