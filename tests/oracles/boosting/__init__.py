"""Boosted trees, slowly: what `oubli.core.boosting` must equal, in plain Python.

    loss.py         exp, log, sigmoid and softmax from + - * /
    trees.py        samples; a tree, reading it, its canonical form
    presorted.py    `incremental-boosting` without quantization
    quantised.py    `incremental-boosting` with it; quantised_parts.py: what it starts from
    online.py       `online-boosting` and its updates; online_bins.py, online_loss.py: what they need

Nothing here shares code with `core`. A delete is a fit without the sample, except where a kind's trees depend on their
history.
"""
