"""The shapes of predictions and of questions about influence."""

from typing import Annotated, Literal

from pydantic import Field

from oubli.app.http.schemas.shapes import Features, Hash, Scalar, Shape, Version


class PredictRequest(Shape):
    """Rows to predict for."""

    instances: Annotated[list[Features], Field(min_length=1)]
    receipt: bool = False
    """Whether to sign the answer."""


class PredictionReceipt(Shape):
    """Which model has answered, signed; see `oubli.verifier.predictions` for what is signed."""

    nonce: Annotated[str, Field(pattern="^[0-9a-f]{32}$")]
    """Mixed with what is signed, so that nobody else can test guesses."""
    set_root: Hash
    """Over the samples that the model was a function of; a state of its version has the same."""
    key_id: str
    signature: str
    """Ed25519, in base64."""


class PredictAnswer(Shape):
    """Predictions in the order of the instances. Regression has no classes and probabilities."""

    predictions: list[Scalar]
    classes: list[Scalar] | None = None
    """The classes held, in the order of the probabilities; it can shrink and grow."""
    probabilities: list[list[float]] | None = None
    model_version: Version
    receipt: PredictionReceipt | None = None
    """Left out when it was not asked for."""


class InfluenceRequest(Shape):
    """Rows, and how to ask which samples made their predictions."""

    instances: Annotated[list[Features], Field(min_length=1)]
    labels: list[Scalar] | None = None
    """The true labels of the instances; by default the predicted labels."""
    method: Literal["leaf-influence", "leaf-refit", "leave-one-out"] | None = None
    """By default `leaf-influence` for boosted trees (minus the derivative of the loss by the sample's weight, with the
    leaves refitted), and for the forest `leave-one-out` (the loss without the sample, less that with it)."""
    update_set: Literal["all", "single"] | Annotated[int, Field(ge=1)] = "all"
    """Which samples' changes the leaf methods follow: all, only the one's own, or those in so many leaves a tree."""
    top: Annotated[int, Field(ge=1, le=1000)] = 10
    """Largest number of samples in each list."""


class Influential(Shape):
    """A sample, and what it does."""

    id: str
    score: float


class InfluenceAnswer(Shape):
    """The samples that do most for the predictions of the instances."""

    helpful: list[Influential]
    """Without them the loss would be higher; the most helpful first."""
    harmful: list[Influential]
    """Without them the loss would be lower; the most harmful first, with negative scores."""
    method: str
    note: str | None = None
    """What there is to know about the scores."""
    n_samples: int
    model_version: Version
