"""Vendors whose API is OpenAI's: one provider, and a row for each of them."""
