"""What is wrong in a template though each of its settings is right for itself."""
