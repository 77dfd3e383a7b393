"""What a model's facts make of a request, prepared when a template is loaded."""
