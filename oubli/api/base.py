"""Base classes of messages, types of fields that several messages share, and problems."""

import json
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, ModelWrapValidatorHandler, PrivateAttr, model_validator
from pydantic.json_schema import SkipJsonSchema
from typing_extensions import TypeAliasType

_IN_EVERY_ANSWER = "x-in-every-answer"


def _adapt(schema: dict[str, Any], message: type[BaseModel]) -> None:
    """Write the JSON schema of a message as generators of clients need it.

    Some generators make a property required when it has a `default`, so that the description gives a default.
    """
    if issubclass(message, Answer):
        schema.setdefault("additionalProperties", False)
    required = set(schema.pop("required", ()))
    for name, field in schema.get("properties", {}).items():
        field.pop("title", None)
        if field.pop(_IN_EVERY_ANSWER, False):
            required.add(name)
        default = field.pop("default", None)
        if default not in (None, "", []) and issubclass(message, Request):
            field["description"] = f"{field.get('description', '')} Default: `{json.dumps(default)}`.".lstrip()
    if required:
        schema["required"] = [name for name in schema["properties"] if name in required]


def later(default: Any, description: str | None = None, *, shown: bool = True) -> Any:
    """Return a field that every answer has, but those of earlier versions: they are read with the default."""
    return Field(default, description=description, repr=shown, json_schema_extra={_IN_EVERY_ANSWER: True})


def one_of(*values: str) -> Any:
    """Return the documentation of a text that is one of some; a client takes others, too, from newer servers."""
    return Field(json_schema_extra={"enum": [*values]})


def of_form(pattern: str, description: str | None = None) -> Any:
    """Return the documentation of a text of some form, which a client does not check."""
    return Field(json_schema_extra={"pattern": pattern}, description=description)


class Message(BaseModel):
    """Base of all messages."""

    # Most programs need few of the messages: the others are never built.
    model_config = ConfigDict(frozen=True, defer_build=True, json_schema_extra=_adapt, protected_namespaces=())


class Request(Message):
    """Base of requests: closed, so that a misspelt key is not ignored."""

    model_config = ConfigDict(extra="forbid")


class Answer(Message):
    """Base of answers. Fields that a newer server sends are ignored; the server itself sends none besides these."""

    model_config = ConfigDict(extra="ignore")


class Kept(Answer):
    """Base of answers that are kept, signed or hashed as they came.

    Attributes
    ----------
    content : mapping
        The JSON object as the server sent it.
    """

    _content: Mapping[str, Any] = PrivateAttr(default_factory=dict)

    @property
    def content(self) -> Mapping[str, Any]:
        """The JSON object as the server sent it."""
        return self._content

    @model_validator(mode="wrap")
    @classmethod
    def _keep(cls, content: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(content)
        if isinstance(content, Mapping):
            found._content = content
        return found


Omitted: TypeAlias = SkipJsonSchema[None]
"""The type, besides its own, of a field that may be left out and is never null."""

# Named types: in the OpenAPI document each is a component of its own.
Scalar = TypeAliasType("Scalar", str | int | float | bool)
FeatureList = TypeAliasType(
    "FeatureList", Annotated[list[Scalar | None], Field(description="In feature order. A missing value is null.")]
)
FeatureObject = TypeAliasType(
    "FeatureObject",
    Annotated[dict[str, Scalar | None], Field(description="By feature name. A missing value is null.")],
)
Features = Annotated[
    FeatureList | FeatureObject,
    Field(description="A list in feature order, or an object by feature name. A missing value is null."),
]
Version = Annotated[
    int,
    Field(
        ge=0,
        description="Increases with each change of the samples held, the parameters or the kind.",
        examples=[32562],
    ),
]
Durable = Annotated[bool, Field(description="Whether the change survives a crash. False only with --ephemeral.")]
Text = Annotated[str, Field(min_length=1, max_length=256)]
Integer = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]  # what a JSON parser reads without loss
Name = TypeAliasType(
    "Name", Annotated[Text | Integer, Field(description="Text of 1 to 256 characters; an integer is its decimal text.")]
)
Names = Annotated[list[Name], Field(min_length=1)]
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Ref = Annotated[Uuid, Field(description="The caller's case number.")]
NextCursor = Annotated[
    str | None, Field(description="Pass it as `cursor` for the next page; null when this is the last.")
]
SampleCursor = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{22}$", description="`next` of the page before, unchanged.")]
By = Literal["ids", "subjects"]
ListFound = Annotated[
    bool,
    Field(
        description="Whether to list the names that were held: the answer is then an object with `receipt` and `found`."
    ),
]
Hash = Annotated[str, of_form("^[0-9a-f]{64}$", "SHA-256 in hexadecimal.")]
Secret = Annotated[str, of_form("^[0-9a-f]{64}$", "32 bytes in hexadecimal.")]
Nonce = Annotated[str, of_form("^[0-9a-f]{32}$")]
Guarantee = Annotated[str, one_of("exact", "epsilon-feasible", "approximate")]
Disclosure = Annotated[
    str,
    one_of("standard", "low"),
    Field(description="`low`: the answer for a row does not depend on samples equal to it."),
]
DisclosureLimits = Annotated[str, Field(description="What this mode does not hide, in a sentence.")]
Changes = Annotated[str, one_of("accepted", "stopped")]
StopReason = Annotated[
    str,
    one_of(
        "disk-failed",
        "model-unusable",
        "ledger-failed",
        "log-rolled-back",
        "disk-full",
        "disk-errors",
        "no-descriptors",
        "journal-unreachable",
    ),
]
Parameter = str | int | float | bool | list[float] | None


class InputProblem(Answer):
    """An error at one place of a request."""

    pointer: str = Field(description="JSON pointer into the body; or a slash and the name of a parameter.")
    detail: str


class Problem(Answer):
    """RFC 9457. Texts contain positions, names of the schema and rules, and never repeat submitted values."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri"}, examples=["urn:oubli:problem:invalid-input"])] = (
        later("", "The kind of problem, for programs.")
    )
    title: str = later("the answer is not a problem document of this server")
    status: int = later(0)
    detail: str = later("")
    errors: list[InputProblem] = Field([], description="The wrong places of the input; left out for other problems.")
    leader: str | None = Field(
        None,
        description="For `not-leader`: URL of the node that accepts changes, null while there is none; left out for "
        "other problems.",
    )
