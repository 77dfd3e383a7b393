"""What models thought when they called tools."""
