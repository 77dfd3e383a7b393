"""Models that read texts and generate none: embedders and rerankers."""
