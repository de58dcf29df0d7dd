"""Messages about predictions: asking for them, without some samples, and which samples made them."""

from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.api.base import Answer, Features, Hash, Names, Nonce, Omitted, Request, Scalar, Version
from oubli.api.samples import Bundle, Influential


class PredictRequest(Request):
    """Rows to predict for."""

    instances: Annotated[list[Features], Field(min_length=1)]
    receipt: bool = Field(False, description="Whether the server signs the answer.")
    coverage: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="The share of new rows whose right answer is to be in their set or interval, such as 0.9.",
    )
    by_class: bool = Field(
        False, description="Whether `coverage` holds for the rows of each class, rather than of all together."
    )


class PredictionReceipt(Answer):
    """A signature over rows, answer, version and root; see `oubli.verifier.states`."""

    nonce: Nonce = Field(description="Random bytes in the signed data; they prevent tests of guesses.")
    set_root: Hash = Field(
        description="Root over the samples of the model; a state of the same version has the same root."
    )
    key_id: str
    signature: str = Field(description="Ed25519, in base64.")


class Predictions(Answer):
    """Predictions in the order of the instances. Regression has no classes and probabilities."""

    predictions: list[Scalar]
    classes: list[Scalar] | Omitted = Field(
        None,
        description="The classes held, in the order of the probabilities; the list can shrink and grow.",
    )
    probabilities: list[list[float]] | Omitted = None


class PredictAnswer(Predictions):
    """Predictions in the order of the instances. Regression has no classes and probabilities."""

    model_version: Version
    receipt: PredictionReceipt | Omitted = Field(None, description="Left out unless requested.")
    sets: list[list[Scalar]] | Omitted = Field(
        None, description="With `coverage`: the classes that a row may be of; none when no class is likely enough."
    )
    intervals: list[tuple[float | None, float | None]] | Omitted = Field(
        None,
        description="With `coverage`: between which numbers a row's target lies; null when too few samples tell.",
    )


class ChangeRequest(Request):
    """How the nearest change of each instance is looked for."""

    columns: Literal[1, 2] = Field(1, description="How many columns may change at most.")
    features: list[str] | None = Field(None, description="The columns that may change; by default all.")
    target: Scalar | None = Field(
        None,
        description="The class to get; by default any other one. Of a regression, where it is needed: the number that "
        "the prediction is to cross.",
    )


class ExplainRequest(Request):
    """Rows whose predictions to explain."""

    instances: Annotated[list[Features], Field(min_length=1)]
    change: ChangeRequest | None = Field(
        None, description="Also find for each instance the nearest change that changes its prediction."
    )


class NearestChange(Answer):
    """The smallest change of an instance that was found to change its prediction."""

    features: list[str] = Field(description="The columns that change.")
    after: list[Scalar] = Field(description="Their new values.")
    distance: float = Field(
        description="Numbers in standard deviations of the samples held; categories, truth values and what was null "
        "count 1."
    )
    prediction: Scalar = Field(description="What is predicted then.")


class Explanations(Answer):
    """What each feature adds to the predictions. Base and attributions of an instance sum to what is explained."""

    measure: Literal["probability", "raw-score", "value"] = Field(
        description="What is explained: class probabilities; of boosted trees raw scores, the log-odds of the second "
        "of two classes, or the logarithm of a number with the loss `poisson`; or the predicted number."
    )
    features: list[str]
    classes: list[Scalar] | Omitted = Field(None, description="When there is an attribution for each of them.")
    base: float | list[float] = Field(description="What is expected of the samples held; a list by class.")
    attributions: list[list[float | list[float]]] = Field(
        description="By instance and feature, in the order of `features`; lists by class."
    )
    changes: list[NearestChange | None] | Omitted = Field(
        None, description="With `change`, by instance; null when no change was found."
    )
    model_version: Version


class InfluenceRequest(Request):
    """Rows, and how to score the samples behind their predictions."""

    instances: Annotated[list[Features], Field(min_length=1)]
    labels: list[Scalar] | None = Field(
        None,
        description="The true labels of the instances; by default the predicted labels.",
    )
    method: Literal["leaf-influence", "leaf-refit", "leave-one-out"] | None = Field(
        None,
        description="By default `leaf-influence` for boosted trees (minus the derivative of the loss by the sample's "
        "weight, with the leaves refitted), and for the forest `leaf-refit` (the loss when its leaves are refitted "
        "without the sample, less that with it); with low disclosure `leave-one-out` (the same when the model unlearns "
        "the sample).",
    )
    update_set: Literal["all", "single"] | Annotated[int, Field(ge=1)] = Field(
        "all",
        description="Samples whose changes the leaf methods follow: all, only the scored one, or those in a number of "
        "leaves of each tree.",
    )
    top: Annotated[int, Field(ge=1, le=1000)] = Field(10, description="Largest number of samples in each list.")


class Influence(Answer):
    """The samples with the greatest influence on the predictions for the instances."""

    helpful: list[Influential] = Field(
        description="Without them the loss would be higher. The most helpful come first."
    )
    harmful: list[Influential] = Field(
        description="Without them the loss would be lower. The most harmful come first, with negative scores."
    )
    method: str
    note: str | None = Field(None, description="An explanation of the scores.")
    n_samples: int
    model_version: Version


_Instances = Annotated[list[Features], Field(min_length=1, max_length=100)]


class WithoutIdsRequest(Request):
    """Rows, and the samples to leave out."""

    instances: _Instances
    ids: Names


class WithoutSubjectsRequest(Request):
    """Rows, and the subjects whose samples to leave out."""

    instances: _Instances
    subjects: Names


WithoutRequest = TypeAliasType("WithoutRequest", WithoutIdsRequest | WithoutSubjectsRequest)


class WithoutAnswer(Answer):
    """Predictions with and without the samples."""

    with_: Annotated[Predictions, Field(alias="with")]
    without: Predictions | None = Field(description="Null if no sample is left.")
    removed: int = Field(description="Samples that were left out.")
    absent: int = Field(description="Named ids or subjects of which the model has learned no sample.")
    n_samples: int = Field(description="Remaining samples.")
    model_version: Version


JobResult = TypeAliasType("JobResult", Influence | WithoutAnswer | Bundle | dict[str, Any])
