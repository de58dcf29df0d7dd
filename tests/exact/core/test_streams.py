"""Streams: at each moment the model is a fresh fit on the window, whatever features come and go."""

import pickle
import random
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from river import checks

from oubli import core
from oubli.core.errors import InputError, UnknownIdError
from oubli.river import wrap
from oubli.streams import Stream

EXACT: list[Any] = [
    lambda: core.DynamicForestClassifier(4, random_state=0),
    lambda: core.DynamicForestRegressor(4, random_state=0),
    lambda: core.IncrementalBoostingClassifier(4, random_state=0),
    lambda: core.IncrementalBoostingRegressor(4, random_state=0),
]
START = datetime(2026, 1, 1, tzinfo=UTC)


def sample(rng: random.Random, step: int) -> tuple[dict[str, Any], float]:
    """Features that emerge, are missing now and then, and come in any order."""
    x: dict[str, Any] = {"heat": rng.gauss(20, 5), "sky": rng.choice(["sun", "rain", None])}
    if step > 8:
        x["air"] = rng.randrange(5)
    if step > 15 and rng.random() < 0.7:
        x["wet"] = rng.random() < 0.5
    items = list(x.items())
    rng.shuffle(items)
    return dict(items), x["heat"] + rng.gauss(0, 2)


@pytest.mark.parametrize("make", EXACT)
@pytest.mark.parametrize("seed", range(3))
def test_at_each_moment_the_model_is_a_fresh_fit_on_the_window(make: Any, seed: int) -> None:
    rng = random.Random(seed)
    by_number, seconds = rng.choice([(7, None), (None, 60.0), (9, 45.0)])
    stream = Stream(make(), window=by_number, window_seconds=seconds)
    held: list[tuple[str, dict[str, Any], Any, datetime, float]] = []
    now = START
    for step in range(30):
        now += timedelta(seconds=rng.uniform(0, 15))
        x, y = sample(rng, step)
        label = y if stream.model.task == "regression" else y > 20
        w = rng.choice([1.0, 1.0, 2.0, 0.5])
        name = stream.learn_one(x, label, at=now, w=w)
        held.append((name, x, label, now, w))
        held = [one for one in held if seconds is None or now < one[3] + timedelta(seconds=seconds)]
        held = held[-by_number:] if by_number else held
        if rng.random() < 0.2 and len(held) > 1:
            gone = held.pop(rng.randrange(len(held)))
            stream.unlearn_one(gone[0])
        assert sorted(stream.model.samples_.ids()) == sorted(one[0] for one in held)
        names = stream.model.schema_.names
        rows = [[one[1].get(feature) for feature in names] for one in held]
        ids, labels, weights = ([one[part] for one in held] for part in (0, 2, 4))
        fresh = make().fit(rows, labels, ids=ids, sample_weight=weights, schema=stream.model.schema_)
        assert [stream.model.samples_.get(name).weight for name in ids] == weights
        assert stream.model.digest() == fresh.digest()
        asked, _ = sample(rng, 30)
        expected = fresh.predict([[asked.get(feature) for feature in names]]).tolist()[0]
        assert stream.predict_one({**asked, "unknown": 3}) == expected


OTHERS: list[Any] = [core.DynamicTreeClassifier, lambda: core.OnlineBoostingClassifier(4, random_state=0)]


@pytest.mark.parametrize("make", [*EXACT, *OTHERS])
def test_river_s_own_checks_pass(make: Any) -> None:
    wrapped = wrap(make(), window=20)
    done = [check(wrapped.clone()) for check in checks.yield_checks(wrapped)]
    assert len(done) > 20


def test_a_fitted_model_is_continued_and_stays_as_it_is() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "x"]})
    model = core.DynamicForestClassifier(4, random_state=0).fit(frame, [0, 1, 0])
    wrapped = wrap(model, window=3)
    wrapped.learn_one({"a": 4.0, "b": "y"}, 1)
    assert sorted(wrapped.stream.model.samples_.ids())[:2] == ["1", "2"]
    assert model.samples_.ids() == ["0", "1", "2"]
    other = pickle.loads(pickle.dumps(wrapped))  # noqa: S301 - ours
    other.learn_one({"a": 5.0, "b": "y"}, 1)
    assert (other.stream.model.n_samples_, other.predict_proba_one({"a": 1.0}).keys()) == (3, {0, 1})


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    stream = Stream(core.DynamicForestClassifier(4, random_state=0), window=2)
    assert stream.predict_one({"a": 1}) is None
    assert stream.predict_proba_one({"a": 1}) == {}
    with pytest.raises(InputError, match="needs a feature that has a value"):
        stream.learn_one({"a": None}, 1)
    first = stream.learn_one({"a": 1.0}, True)
    stream.learn_one({"a": 2.0}, False, sample_id="second")
    with pytest.raises(InputError):
        stream.learn_one({"a": "text"}, True)
    with pytest.raises(InputError):
        stream.learn_one({"a": 2.0}, True, sample_id="second")
    assert sorted(stream.model.samples_.ids()) == sorted([first, "second"])
    for refused in ({"a": "text", "new": 1}, {"a": [1], "other": "x"}):
        with pytest.raises(InputError):
            stream.learn_one(refused, True)
    assert stream.model.schema_.names == ("a",), "a refused sample brings no column"
    stream.learn_one({"a": 2.0}, True)
    with pytest.raises(UnknownIdError):
        stream.unlearn_one(first)
    unfitted = Stream(core.DynamicForestRegressor(4))
    with pytest.raises(InputError):
        unfitted.learn_one({"a": 1.0}, "no number")
    assert not unfitted.is_fitted
    timed = Stream(core.DynamicForestClassifier(4), window_seconds=5)
    timed.learn_one({"a": 1.0}, True, at=START)
    for at in (START - timedelta(seconds=1), START.replace(tzinfo=None)):
        with pytest.raises(InputError, match="must have a time zone"):
            timed.learn_one({"a": 1.0}, True, at=at)
    assert timed.model.n_samples_ == 1


def test_a_new_feature_keeps_subjects_and_uses_no_id_again() -> None:
    frame = pytest.importorskip("pandas").DataFrame({"a": [1.0, 2.0], "who": ["p", "q"]})
    model = core.DynamicForestClassifier(4, random_state=0)
    stream = Stream(model.fit(frame, [0, 1], subjects="who", ids="generate", expires_at=START))
    gone = stream.learn_one({"a": 3.0}, 1)
    stream.unlearn_one(gone)
    assert stream.learn_one({"a": 3.0, "b": 1}, 1) != gone
    store = stream.model.samples_
    assert [store.belongings(name).subject for name in ("0", "1")] == ["p", "q"]
    assert store.belongings("0").expires_ms == int(START.timestamp() * 1000)
    stream.model.delete(subjects="p")
    with pytest.raises(UnknownIdError):
        stream.unlearn_one("0")


def test_a_stream_s_settings_are_checked() -> None:
    for wrong in ({"window": 0}, {"window": 2.5}, {"window_seconds": 0}, {"window_seconds": -1.0}):
        with pytest.raises(InputError):
            Stream(core.DynamicForestClassifier(4), **wrong)
    with pytest.raises(InputError, match="a window of its own"):
        Stream(core.DynamicTreeClassifier(window=5))
    with pytest.raises(InputError, match="have no names"):
        Stream(core.DynamicForestClassifier(4).fit([[1.0], [2.0]], [0, 1]))
