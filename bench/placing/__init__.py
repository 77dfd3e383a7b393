"""What `bench.placement` is made of: what is asked, and the replicas that answer, on virtual time."""
