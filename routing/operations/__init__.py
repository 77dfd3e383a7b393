"""What is kept beyond a request: records, limits, and their stores."""
