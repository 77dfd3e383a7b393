"""Who may ask, and how much: keys, and the limits and budgets that requests are held against."""
