"""Which models are in the memory of this machine: one owner of that, what it counts, and the models
as it sees them. It knows no engine, and no clock but that of the event loop."""
