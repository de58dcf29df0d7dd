"""Transformers before a model: ids survive them, and those that learn from samples are refused or told."""

import warnings
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, StandardScaler

from oubli import DynamicForestClassifier, DynamicForestRegressor
from oubli.core.errors import InputError, StatefulTransformerWarning
from oubli.pipeline import DynamicPipeline

FRAME = pd.DataFrame(
    {"a": np.arange(40.0), "b": np.arange(40.0) % 7, "who": [f"p{i // 2}" for i in range(40)]},
    index=[f"row {i}" for i in range(40)],
)
Y = (np.arange(40) % 3 == 0).astype(int)


def forest() -> DynamicForestClassifier:
    return DynamicForestClassifier(5, random_state=0)


def test_ids_and_subjects_survive_transformers_and_the_model_is_a_fresh_fit() -> None:
    steps = [("norm", Normalizer()), ("square", FunctionTransformer(np.square)), ("model", forest())]
    pipeline = DynamicPipeline(steps)
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pipeline.fit(FRAME[:30], Y[:30], subjects="who", expires_at=moment)
        assert pipeline.add(FRAME[30:], Y[30:], subjects="who") == list(FRAME.index[30:])
        pipeline.delete("row 3")
        pipeline.delete(subjects="p5")
        pipeline.replace("row 4", pd.DataFrame({"a": [1.0], "b": [2.0]}), 1)
    left = FRAME.drop(index=["row 3", "row 10", "row 11"])
    X, y = left[["a", "b"]].copy(), Y[[int(name.split()[1]) for name in left.index]].copy()
    X.loc["row 4"] = [1.0, 2.0]
    y[list(left.index).index("row 4")] = 1
    fresh = forest().fit(np.square(Normalizer().fit_transform(X)), y, ids=left.index)
    assert pipeline.model.digest() == fresh.digest()
    asked = FRAME[["a", "b"]]
    transformed = np.square(Normalizer().transform(asked.to_numpy()))
    assert pipeline.predict(asked).tolist() == fresh.predict(transformed).tolist()
    assert pipeline.predict_proba(asked).shape == (40, 2)
    assert 0 <= pipeline.score(asked, Y) <= 1
    expiries = {name: pipeline.model.samples_.belongings(name).expires_ms for name in ("row 0", "row 35")}
    assert expiries == {"row 0": int(moment.timestamp() * 1000), "row 35": None}


def test_weights_go_past_the_transformers() -> None:
    pipeline = DynamicPipeline([("norm", Normalizer()), ("model", DynamicForestRegressor(5, random_state=0))])
    pipeline.fit(FRAME[:30].assign(w=2.0), Y[:30], subjects="who", sample_weight="w")
    pipeline.add(FRAME[30:], Y[30:], subjects="who", sample_weight=[0.5] * 9 + [3])
    pipeline.replace("row 0", pd.DataFrame({"a": [1.0], "b": [2.0]}), 1)
    assert len(pipeline.model.schema_.names) == 2
    assert [pipeline.model.samples_.get(f"row {i}").weight for i in (0, 29, 30, 39)] == [2, 2, 0.5, 3]


@pytest.mark.parametrize("transformer", [
    StandardScaler(), make_pipeline(Normalizer(), SimpleImputer()),
    ColumnTransformer([("keep", "passthrough", [0]), ("scale", StandardScaler(), [1])]),
    ColumnTransformer([("keep", "passthrough", [0])], remainder=StandardScaler()),
])  # fmt: skip
def test_transformers_that_learn_from_samples_are_refused_or_told(transformer: Any) -> None:
    X = FRAME[["a", "b"]]
    with pytest.raises(InputError, match="scale would learn from samples"):
        DynamicPipeline([("scale", transformer), ("model", forest())]).fit(X, Y)
    pipeline = DynamicPipeline([("scale", transformer), ("model", forest())], stateful="warn")
    with pytest.warns(StatefulTransformerWarning, match="will not forget"):
        pipeline.fit(X, Y)
    with pytest.warns(StatefulTransformerWarning, match="has not forgotten"):
        pipeline.delete("row 1")
    assert pipeline.model.n_samples_ == 39


def test_what_is_no_pipeline_is_refused() -> None:
    for steps in ([], [("scale", StandardScaler())]):
        with pytest.raises(InputError, match="the last step must be an estimator of oubli"):
            DynamicPipeline(steps)
    with pytest.raises(InputError, match="'refuse' or 'warn'"):
        DynamicPipeline([("model", forest())], stateful="ignore")
    nothing = ColumnTransformer([("keep", "passthrough", [0]), ("drop", "drop", [1])])
    DynamicPipeline([("nothing", nothing), ("model", forest())]).fit(FRAME[["a", "b"]], Y)
