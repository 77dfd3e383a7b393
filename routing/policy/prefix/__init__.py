"""`balance: prefix`: a request goes to the target that has computed most of its prompt before."""
