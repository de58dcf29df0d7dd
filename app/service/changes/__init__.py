"""Changes of the model: a command for each mutation, transactions, and the one writer."""
