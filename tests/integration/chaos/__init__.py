"""What breaks while requests run: vendors in processes of their own, and a server before them."""
