"""What a client sends to Gemini's API: wire -> vocabulary."""
