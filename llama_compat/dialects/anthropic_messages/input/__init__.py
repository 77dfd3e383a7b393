"""What a client sends to Anthropic's Messages API: wire -> vocabulary."""
