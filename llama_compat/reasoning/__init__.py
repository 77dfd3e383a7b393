"""What models thought when they called tools, kept until it has to come back: whose it is, for how
long, and where it goes in the conversation. One rule for every client API and every vendor's."""
