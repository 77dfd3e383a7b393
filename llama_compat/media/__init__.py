"""Media as messages carry them: images, audio and documents."""
