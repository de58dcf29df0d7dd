"""Several nodes that serve one model: one leads and writes the journal, the others follow its records.

    lease      thread      renews or waits for the lease, reports how far the node is, expels silent ones
    follower   event loop  takes in the records of the node that leads
    boundary   event loop  snapshots where segments begin, digests compared, keys destroyed
    replica    event loop  takes over, gives up, has the node rejoin; tells what is known of the nodes
    join, start            a node without files gets them from the one that leads, before anything is served
    peers, door, nodes     requests between nodes, and what is known of them

Which node leads is decided in PostgreSQL (`oubli.app.storage.postgres`): its clock says when a lease is over, and the
epoch says who may write. So two nodes may believe that they lead, and only one of them can change anything.
"""
