"""What a runtime is made of: each part new, or that of the runtime before, where it is to be the
same."""
