"""FuDyADT: one decision tree whose nodes are built anew once enough samples have come or gone."""
