"""Amazon Bedrock: what both of its APIs are told, and Converse as a provider."""
