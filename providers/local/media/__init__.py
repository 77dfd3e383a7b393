"""Media in prompts, pictures and audio: what may come in, as files, whichever engine takes it."""
