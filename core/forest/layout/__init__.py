"""How a forest lies in memory: bits of cells, counters of big nodes, and the lists of samples in leaves."""
