"""Several nodes that serve one model: one leads and writes the journal, the others follow its records.

    lease      thread      renews or waits for the lease, reports how far the node is, expels silent nodes
    follower   event loop  applies the records of the leader; where segments begin: snapshots, digests compared,
                           keys destroyed
    replica    event loop  takes over, gives up, has the node rejoin; reports the state of the nodes
    start                  a node without files gets them from the leader before it serves anything
    peers                  requests between nodes, and the file that has a node rejoin

Which node leads is decided in PostgreSQL (`oubli.app.storage.postgres`): its clock says when a lease is over, and the
epoch says who may write. So two nodes may believe that they lead, and only one of them can change anything.
"""
