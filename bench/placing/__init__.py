"""What `bench.placement` is made of: what is asked, and replicas that answer on virtual time."""
