"""The candidates of each iteration: a share of all edges and categories, chosen by a hash of their values.

A feature with few edges, or few categories, has all of them as candidates. All trees of an iteration have the same.
"""

import numpy as np

from oubli.core.boosting.quantised.bins import Features
from oubli.core.boosting.quantised.state import Bins, Plans
from oubli.core.jit.policy import inner, kernel
from oubli.core.rng import combine, mix

CANDIDATES = np.uint64(6)
FEW = 16  # so many edges or categories are candidates all


@inner
def feature_key(seed, iteration, feature):
    """What an iteration's choice among the candidates of a feature is drawn from."""
    return combine(combine(combine(mix(np.uint64(seed)), CANDIDATES), np.uint64(iteration)), np.uint64(feature))


@inner
def _is_chosen(n, key, bits, limit):
    return n <= FEW or combine(key, bits) <= limit


@kernel
def count_places(features, edge_bits, n_iterations, seed, limit, sizes):
    """Count the places that each iteration takes: sizes int32[iterations, d]."""
    d = sizes.shape[1]
    for iteration in range(n_iterations):
        for feature in range(d):
            key = feature_key(seed, iteration, feature)
            n_chosen = 0
            if features.categorical[feature]:
                first, last = features.first_category[feature], features.first_category[feature + 1]
                for i in range(first, last):
                    n_chosen += _is_chosen(last - first, key, features.categories[i], limit)
                sizes[iteration, feature] = n_chosen + (n_chosen < last - first)
            else:
                first, last = features.first_edge[feature], features.first_edge[feature + 1]
                for i in range(first, last):
                    n_chosen += _is_chosen(last - first, key, edge_bits[i], limit)
                sizes[iteration, feature] = n_chosen + 2


@kernel
def choose(features, edge_bits, first_bin, seed, limit, plans):
    """Write places and cuts; first_place stands.

    A numeric feature's places: one up to each chosen edge, one for the values above the last (its candidate divides
    missing values from the others), one for missing values. A categorical feature's: one for each chosen category by
    rank, one for all others, if there are any.
    """
    n_iterations, d = plans.common_place.shape
    for iteration in range(n_iterations):
        places, cuts = plans.places[iteration], plans.cuts[iteration]
        for feature in range(d):
            key = feature_key(seed, iteration, feature)
            place = np.int64(plans.first_place[iteration, feature])
            end = np.int64(plans.first_place[iteration, feature + 1])
            first = np.int64(first_bin[feature])
            n_codes = np.int64(first_bin[feature + 1]) - first
            if features.categorical[feature]:
                start = features.first_category[feature]
                for code in range(n_codes):
                    if _is_chosen(n_codes, key, features.categories[start + code], limit):
                        places[first + code] = place
                        cuts[place] = code
                        plans.draws[iteration, place] = combine(key, ~features.categories[start + code]) >> np.uint64(
                            56
                        )
                        place += 1
                    else:
                        places[first + code] = end - 1
                continue
            start = features.first_edge[feature]
            for code in range(n_codes - 1):
                places[first + code] = place
                if code == n_codes - 2:
                    cuts[place] = code
                    plans.draws[iteration, place] = key >> np.uint64(56)
                elif _is_chosen(n_codes - 2, key, edge_bits[start + code], limit):
                    cuts[place] = code
                    plans.draws[iteration, place] = combine(key, ~edge_bits[start + code]) >> np.uint64(56)
                    place += 1
            places[first + n_codes - 1] = end - 1
        places[np.int64(first_bin[d])] = plans.first_place[iteration, d]


def make_plans(features: Features, bins: Bins, n_iterations: int, seed: int, share: float) -> Plans:
    """Choose the candidates of all iterations."""
    d = len(features.categorical)
    limit = np.uint64(min(int(share * 2.0**64), 2**64 - 1))
    edge_bits = features.edges.view(np.uint64)
    sizes = np.zeros((n_iterations, d), np.int32)
    count_places(features, edge_bits, n_iterations, np.uint64(seed), limit, sizes)
    first_place = np.zeros((n_iterations, d + 1), np.int32)
    np.cumsum(sizes, axis=1, out=first_place[:, 1:])
    n_places = int(first_place[:, -1].max(initial=0)) + 1
    places = np.zeros((n_iterations, int(bins.first_bin[-1]) + 1), np.uint16 if n_places < 2**16 else np.uint32)
    cuts = np.full((n_iterations, n_places), -1, np.int32)
    common_place = np.full((n_iterations, d), -1, np.int32)
    draws = np.zeros((n_iterations, n_places), np.uint8)
    plans = Plans(places, first_place, cuts, draws, common_place)
    choose(features, edge_bits, bins.first_bin, np.uint64(seed), limit, plans)
    has_common = bins.common_bin >= 0
    common_place[:, has_common] = places[:, bins.common_bin[has_common]]
    return plans
