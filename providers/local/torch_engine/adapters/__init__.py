"""LoRA adapters: what is added to the products of a model that stays as it is."""
