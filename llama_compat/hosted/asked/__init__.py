"""What requests say of the tools that the server runs, where several APIs say it alike."""
