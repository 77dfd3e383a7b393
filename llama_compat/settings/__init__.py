"""What settings are made of, wherever they stand: it knows no template and no other room."""
