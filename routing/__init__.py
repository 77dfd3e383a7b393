"""The top floor: the router that clients talk to, from the socket to the choice of a target."""
