"""Mutations: one command each, from the request to the journal, into the model and to the answer.

    plan      checks the command against the model and finds its body; changes nothing, and may be called again
    body      what the journal keeps, and what a start applies again (see `bodies`); None when no sample changes
    apply     changes the model, which cannot fail any more
    result    what is answered

Commands are committed together, in a `Transaction`, when nothing that one touches is touched by another: then each sees
the model as if it came alone. A `ModelSwap` replaces the whole model, and is written alone.
"""
