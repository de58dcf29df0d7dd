"""Online GBDT: boosted trees updated in place, approximately."""
