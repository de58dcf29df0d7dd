"""A cluster of real servers on hosts of its own in network namespaces, clients that note every answer, and failures."""
