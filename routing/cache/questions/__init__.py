"""Questions that are alike: what is known of them, and who compares them."""
