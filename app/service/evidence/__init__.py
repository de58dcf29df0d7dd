"""Evidence: receipts, the tree over the samples held, states of the model, and the signed log."""
