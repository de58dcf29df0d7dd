"""The live model: who may use it and when, and the questions that only read it."""
