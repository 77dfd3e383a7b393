"""What vendors answer in OpenAI's own words, on its way to clients that speak them too."""
