"""An engine that takes the time of a real one and computes nothing: for trying out what lies before
it. What it does is told by four numbers, on any clock."""
