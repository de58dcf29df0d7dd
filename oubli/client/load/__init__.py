"""The load test: what a server of Oubli answers under load, and how soon.

    plan          what is asked for: steps, mix of operations, where rows come from
    rows          features and labels, from samples held, from the server's schema, or from a CSV file
    histogram     durations, in buckets whose width grows with them
    records       what was measured: a histogram for each operation, statuses, broken promises, the client's own effort
    http          one connection as bytes go over it; requests as bytes
    alarm         a timer that is more exact than that of the event loop
    worker        a process that sends and measures: `python -m oubli.client.load.worker`
    controller    starts the workers, puts together what they measured, takes away what they added
    thresholds    conditions that fail a test
    report        the result as JSON and as lines
    plot          the result as a picture

A worker is a process of its own even when it is the only one, so that nothing but sending and receiving happens in it.
Workers and controller exchange JSON, a line for each message.
"""
