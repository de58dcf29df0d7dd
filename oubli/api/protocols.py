"""Messages of protocols of others: the Open Inference Protocol (V2), and OpenDSR 2.0, requests by controllers.

Their routes parse and write JSON by hand.
"""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import Field
from typing_extensions import TypeAliasType

from oubli.api.base import Answer, Message, Request, Scalar, Uuid

Datatype = Literal[
    "BOOL", "UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64", "FP16", "FP32", "FP64", "BYTES"
]
Parameters = TypeAliasType("Parameters", dict[str, Scalar | None])
Elements = Annotated[
    list[Scalar | list[Scalar | None] | None],
    Field(description="Row by row, flat or nested according to the shape. A missing value is null or NaN."),
]
Size = Annotated[int, Field(ge=0)]


class TensorMetadata(Answer):
    """An input or an output of the model."""

    name: str
    datatype: Datatype
    shape: list[int] = Field(description="-1 means any number.")


class InputTensor(Request):
    """All features of some rows, as shape [rows, features]; or one feature, as [rows] or [rows, 1]."""

    name: str = Field(description="Name of the feature; a tensor of all features may have any name.")
    datatype: Datatype
    shape: Annotated[list[Size], Field(min_length=1, max_length=2)]
    parameters: Parameters = Field(
        default_factory=dict,
        description="`binary_data_size`: number of bytes of the tensor after the JSON, instead of `data`.",
    )
    data: Elements | None = None


class RequestedOutput(Request):
    """A requested output."""

    name: Literal["predictions", "probabilities", "classes"]
    parameters: Parameters = Field(
        default_factory=dict,
        description="`binary_data`: whether to answer with bytes after the JSON.",
    )


class InferenceRequest(Request):
    """Rows to predict for."""

    id: str = Field("", description="Repeated in the answer.")
    model_name: str = Field("", description="Ignored: the path names the model.")
    model_version: str = Field("", description="Ignored: the path names the version.")
    parameters: Parameters = Field(
        default_factory=dict,
        description="`binary_data_output`: whether to answer with bytes, unless an output says otherwise. "
        "`min_version`: version that the model must have reached. `extra_columns` (`refuse` or `ignore`): what is done "
        "with inputs that are no features; `missing_columns` (`refuse` or `missing`): with features without an input. "
        "Others are ignored.",
    )
    inputs: Annotated[list[InputTensor], Field(min_length=1)]
    outputs: list[RequestedOutput] = Field(default_factory=list, description="All by default.")


class OutputTensor(Answer):
    """An output."""

    name: str
    datatype: Datatype
    shape: list[int]
    parameters: Parameters = Field(
        default_factory=dict,
        description="`binary_data_size`: number of bytes of the tensor after the JSON, instead of `data`. "
        "`content_type`: format of each text, if labels have more than one type.",
    )
    data: Annotated[list[Scalar] | None, Field(description="Row by row, flat.")] = None


class InferenceAnswer(Answer):
    """Predictions in the order of the rows, as `POST /predict` answers them."""

    model_name: str
    model_version: str = Field(description="As in `parameters`, as text.")
    id: str | None = None
    parameters: dict[str, int] = Field(
        description="`model_version`: increases with each change of the samples held, the parameters or the kind."
    )
    outputs: list[OutputTensor]


class ModelMetadata(Answer):
    """The model, its current version, and its tensors."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorMetadata]
    outputs: list[TensorMetadata]


class ServerMetadata(Answer):
    """The server."""

    name: str
    version: str
    extensions: list[str]


class ServerHealth(Answer):
    """The server answers; `ready` only if requested or known."""

    live: bool
    ready: bool | None = None


class ModelHealth(Answer):
    """The model answers."""

    name: str
    ready: bool


class InferenceError(Answer):
    """An error of the Open Inference Protocol."""

    error: str = Field(description="Names positions, names of the schema and rules, and never repeats what was sent.")


class OpendsrIdentity(Message):
    """Whom a request is about."""

    identity_type: str = Field(
        description="`GET /opendsr/v2/discovery` lists those that are known; others are passed over."
    )
    identity_value: str
    identity_format: Literal["raw", "sha1", "md5", "sha256"] = Field(description="`raw`; others are passed over.")


class OpendsrRequest(Message):
    """A request of OpenDSR 2.0. Keys that are not known are passed over."""

    regulation: Literal["gdpr", "ccpa"]
    subject_request_id: Uuid = Field(description="Version 4, in lower case, made by the controller.")
    subject_request_type: Literal["erasure", "access", "portability"]
    submitted_time: datetime
    subject_identities: list[OpendsrIdentity] | None = None
    api_version: str | None = None
    status_callback_urls: list[str] | None = Field(
        None,
        description="URLs that `opendsr_callbacks` in the settings names; they are called when the status changes.",
    )
    extensions: dict[str, Any] | None = Field(
        None,
        description="By domain; below that of this server `sample_ids` names samples to erase instead of identities.",
    )


class OpendsrReply(Answer):
    """A request that was taken. `X-OpenDSR-Signature` signs the body."""

    controller_id: str
    expected_completion_time: datetime
    received_time: datetime
    encoded_request: str = Field(description="The body of the request in base64: do not log it.")
    subject_request_id: Uuid
    api_version: str


class OpendsrStatus(Answer):
    """How far a request is."""

    controller_id: str
    expected_completion_time: datetime
    subject_request_id: Uuid
    request_status: Literal["pending", "in_progress", "completed", "cancelled"] = Field(
        description="An erasure is `in_progress` when it is unlearned, and `completed` when it is erased from all "
        "files."
    )
    api_version: str
    results_url: str | None = Field(
        None,
        description="Of access and portability: where the bundle is, as long as it is kept.",
    )
    results_count: int | None = None


class OpendsrCancellation(Answer):
    """A request that was cancelled."""

    controller_id: str
    received_time: datetime
    subject_request_id: Uuid
    api_version: str


class OpendsrSupported(Answer):
    """A type of identities that are subjects."""

    identity_type: str
    identity_format: Literal["raw"]


class OpendsrDiscovery(Answer):
    """What the server takes."""

    api_version: str
    supported_identities: list[OpendsrSupported]
    supported_subject_request_types: list[Literal["erasure", "access", "portability"]]
    processor_certificate: str = Field(description="URL of the certificate.")


class OpendsrErrorDetail(Answer):
    """One thing that is wrong."""

    domain: str
    reason: str = Field(description="A slug of our problems.")
    message: str


class OpendsrErrorContent(Answer):
    """What is wrong."""

    code: int
    message: str
    errors: list[OpendsrErrorDetail]


class OpendsrError(Answer):
    """An error of OpenDSR."""

    error: OpendsrErrorContent
