"""The one sample store: what is held, by slot, and the ids, classes, categories and subjects that lead to it."""
