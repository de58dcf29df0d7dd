"""FuDyADT: one decision tree that stays near the greedy one under inserts and deletes."""
