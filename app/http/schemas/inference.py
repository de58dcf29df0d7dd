"""The shapes of the Open Inference Protocol, for the OpenAPI page; its routes parse and answer raw JSON."""

from typing import Annotated, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.app.http.schemas.shapes import Scalar, Shape
from oubli.app.http.tensors import DATATYPES

Datatype = Literal[DATATYPES]  # type: ignore[valid-type]
Parameters = TypeAliasType("Parameters", dict[str, Scalar | None])
Elements = Annotated[
    list[Scalar | list[Scalar | None] | None],
    Field(description="Row by row, flat or nested as the shape says. A missing value is null, or NaN."),
]
Size = Annotated[int, Field(ge=0)]


class TensorMetadata(Shape):
    """An input or an output of the model."""

    name: str
    datatype: Datatype
    shape: list[int]
    """-1 is any number."""


class InputTensor(Shape):
    """All features of some rows, as shape [rows, features]; or one feature, as [rows] or [rows, 1]."""

    name: str
    """Of the feature; of a tensor of all features any name."""
    datatype: Datatype
    shape: Annotated[list[Size], Field(min_length=1, max_length=2)]
    parameters: Parameters = Field(default_factory=dict)
    """`binary_data_size`: bytes of the tensor, behind the JSON, in place of `data`."""
    data: Elements | None = None


class RequestedOutput(Shape):
    """An output to answer with."""

    name: Literal["predictions", "probabilities", "classes"]
    parameters: Parameters = Field(default_factory=dict)
    """`binary_data`: whether to answer with bytes behind the JSON."""


class InferenceRequest(Shape):
    """Rows to predict for."""

    id: str = ""
    """Repeated in the answer."""
    model_name: str = ""
    """Not looked at: the path names the model."""
    model_version: str = ""
    """Not looked at: the path names the version."""
    parameters: Parameters = Field(default_factory=dict)
    """`binary_data_output`: whether to answer with bytes where an output does not say. `min_version`: version that the
    model must have reached. Others are ignored."""
    inputs: Annotated[list[InputTensor], Field(min_length=1)]
    outputs: list[RequestedOutput] = Field(default_factory=list)
    """By default all."""


class OutputTensor(Shape):
    """An output."""

    name: str
    datatype: Datatype
    shape: list[int]
    parameters: Parameters = Field(default_factory=dict)
    """`binary_data_size`: bytes of the tensor, behind the JSON, in place of `data`. `content_type`: what each text is,
    where labels are of more than one type."""
    data: Annotated[list[Scalar] | None, Field(description="Row by row, flat.")] = None


class InferenceAnswer(Shape):
    """Predictions in the order of the rows, as `POST /predict` answers them."""

    model_name: str
    model_version: str
    """As in `parameters`, as text."""
    id: str | None = None
    parameters: dict[str, int]
    """`model_version`: increases with each change of the samples held, the parameters or the kind."""
    outputs: list[OutputTensor]


class ModelMetadata(Shape):
    """The model, its present version, and its tensors."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(Shape):
    """The server."""

    name: str
    version: str
    extensions: list[str]


class ServerHealth(Shape):
    """The server answers; `ready` only where that was asked, or is known."""

    live: bool
    ready: bool | None = None


class ModelHealth(Shape):
    """The model answers."""

    name: str
    ready: bool


class InferenceError(Shape):
    """An error of the Open Inference Protocol."""

    error: str
    """Names positions, names of the schema and rules, and never repeats what was sent."""
