"""FuDyADT: one decision tree whose nodes are rebuilt after enough samples have come or gone."""
