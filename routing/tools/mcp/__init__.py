"""Tools of servers of the Model Context Protocol, by the official SDK: what they are, and what of
them comes in."""
