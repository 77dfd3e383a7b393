"""OpenAI's calls about images, sound and moderation, which have no words in the vocabulary: what is
looked at before one of them goes anywhere, what its reply has cost, and its streams."""
