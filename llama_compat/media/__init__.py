"""Media as messages carry them: images and audio."""
