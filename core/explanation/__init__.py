"""Why a model answers as it does: attributions to columns, and the nearest row that is answered otherwise.

All but `estimator.py` works on trees as plain arrays, which every engine gives, and knows nothing of models.
"""
