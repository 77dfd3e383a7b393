"""What of requests and replies is looked through by a template's checks, and what comes of it.

Decoded text is what is looked through, whichever client API it came by: in a request and a whole
reply each text of the JSON, in a stream the parts of the vocabulary. Nothing here asks a network.
"""
