"""Every client API in front of every kind of provider."""
