"""The load test: what a server of Oubli answers under load, and how soon.

    plan          steps, mix of operations, conditions that fail a test
    records       what was measured: a histogram for each operation, statuses, broken promises, the client's own effort
    target        the server: its address, single requests, and rows for its model
    worker        a process that sends and measures, and one connection as bytes go over it
    controller    starts the workers, adds up what they measured, deletes what they added
    report        the result as JSON, as lines and as a picture

A worker is a process of its own even when it is the only one, so that nothing but sending and receiving happens in it.
Workers and controller exchange their objects over the pipes of `multiprocessing`.
"""
