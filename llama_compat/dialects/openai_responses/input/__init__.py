"""What a request for a response says: wire -> vocabulary."""
