"""What is known of requests afterwards: records and their prices, metrics, traces, the log."""
