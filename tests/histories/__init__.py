"""One player of random histories, for every kind of model.

`worlds`: the samples there are, and what happens to them. `player`: does it to a model. `comparisons`: what goes along
with a model and is compared with it after every operation. `kinds`: the table of kinds, and how a history is chosen.
"""
