"""Models that run as replicas of this server itself: relayed to in the language that the client
speaks, each replica a target by itself."""
