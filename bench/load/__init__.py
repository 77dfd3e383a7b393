"""The parts of the gateway benchmarks: upstream, load generator, and the bare relay beside ours."""
