"""`llama-compat chat`: a conversation with a running server, in a terminal or through a pipe."""
