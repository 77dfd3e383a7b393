"""Pictures in prompts: what may come in, as files, whichever engine sees them."""
