"""Commands that read what is recorded of requests: usage, requests, export."""
