"""The way to a vendor and back: connections and time limits, errors, redaction, what it lists."""
