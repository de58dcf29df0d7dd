"""The candidates of each iteration: a share of all edges and categories, chosen by a hash of their values.

A feature with few edges, or few categories, has all of them as candidates. All trees of an iteration have the same.
"""

import numpy as np

from oubli.core.boosting.parameters import hash_limit
from oubli.core.boosting.quantised.bins import Features
from oubli.core.boosting.quantised.state import Bins, Plans
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import combine, mix

CANDIDATES = np.uint64(6)
FEW = 16  # so many edges or categories are candidates all
_BYTE = np.uint64(56)


@inner
def feature_key(seed, iteration, feature):
    """What an iteration's choice among the candidates of a feature is drawn from."""
    return combine(combine(combine(mix(np.uint64(seed)), CANDIDATES), np.uint64(iteration)), np.uint64(feature))


@inner
def _is_chosen(n, key, bits, limit):
    return n <= FEW or combine(key, bits) <= limit


@kernel
def choose(features, edge_bits, first_bin, seed, limit, plans):
    """Write all of the plans but the common places.

    A numeric feature's places: one up to each chosen edge, one for the values above the last (its candidate divides
    missing values from the others), one for missing values. A categorical feature's: one for each chosen category by
    rank, one for all others, if there are any.
    """
    n_iterations, d = plans.common_place.shape
    for iteration in range(n_iterations):
        places, cuts, draws = plans.places[iteration], plans.cuts[iteration], plans.draws[iteration]
        place = np.int64(0)
        for feature in range(d):
            key = feature_key(seed, iteration, feature)
            start = place
            first = np.int64(first_bin[feature])
            n_codes = np.int64(first_bin[feature + 1]) - first
            if features.categorical[feature]:
                hashes = features.categories[features.first_category[feature] : features.first_category[feature + 1]]
                for code in range(n_codes):
                    if _is_chosen(n_codes, key, hashes[code], limit):
                        places[first + code] = place
                        cuts[place] = code
                        draws[place] = combine(key, ~hashes[code]) >> _BYTE
                        place += 1
                if place - start < n_codes:
                    for code in range(n_codes):
                        if not _is_chosen(n_codes, key, hashes[code], limit):
                            places[first + code] = place
                    place += 1
            else:
                edge = features.first_edge[feature]
                for code in range(n_codes - 1):
                    places[first + code] = place
                    if code == n_codes - 2:
                        cuts[place] = code
                        draws[place] = key >> _BYTE
                    elif _is_chosen(n_codes - 2, key, edge_bits[edge + code], limit):
                        cuts[place] = code
                        draws[place] = combine(key, ~edge_bits[edge + code]) >> _BYTE
                        place += 1
                places[first + n_codes - 1] = place + 1
                place += 2
            plans.first_place[iteration, feature + 1] = place
        places[np.int64(first_bin[d])] = place


def make_plans(features: Features, bins: Bins, n_iterations: int, seed: int, share: float) -> Plans:
    """Choose the candidates of all iterations."""
    d, n_bins = len(features.categorical), int(bins.first_bin[-1])
    shape = n_iterations, n_bins + 1
    plans = Plans(
        np.zeros(shape, np.uint16 if n_bins < 2**16 - 1 else np.uint32),
        np.zeros((n_iterations, d + 1), np.int32),
        np.full(shape, -1, np.int32),
        np.zeros(shape, np.uint8),
        np.full((n_iterations, d), -1, np.int32),
    )
    choose(features, features.edges.view(np.uint64), bins.first_bin, np.uint64(seed), hash_limit(share), plans)
    has_common = bins.common_bin >= 0
    plans.common_place[:, has_common] = plans.places[:, bins.common_bin[has_common]]
    n_places = int(plans.first_place[:, -1].max(initial=0)) + 1
    return plans._replace(cuts=plans.cuts[:, :n_places].copy(), draws=plans.draws[:, :n_places].copy())
