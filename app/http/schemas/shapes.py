"""What the shapes of requests and answers are made of: types of fields, their base, and problems."""

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler
from pydantic_core.core_schema import CoreSchema
from typing_extensions import TypeAliasType

from oubli.core.field_texts import field_texts
from oubli.core.registry import PLACES

Changes = Literal["accepted", "stopped"]
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
Durable = Annotated[bool, Field(description="Whether it survives a crash. False only with --ephemeral.")]
Text = Annotated[str, Field(min_length=1, max_length=256)]
Integer = Annotated[int, Field(ge=-(2**63), le=2**64 - 1)]  # what a JSON parser reads without loss
Name = TypeAliasType(
    "Name", Annotated[Text | Integer, Field(description="Text of 1 to 256 characters; an integer is its decimal text.")]
)
Uuid = Annotated[str, Field(json_schema_extra={"format": "uuid"})]
Ref = Annotated[Uuid, Field(description="The caller's case number.")]
NextCursor = Annotated[
    str | None, Field(description="Pass it as `cursor` for the next page; null when this is the last.")
]
SampleCursor = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{22}$", description="`next` of the page before, as it is.")]
By = Literal["ids", "subjects"]
ListFound = Annotated[
    bool,
    Field(description="Whether to say of which names something was held: in an object with `receipt` and `found`."),
]


def without_default(schema: dict[str, Any]) -> None:
    """Take the default out of the schema of a field."""
    schema.pop("default", None)


# Of a field that is in every answer but those that earlier versions have signed.
LATER = Field(json_schema_extra=without_default)
Hash = Annotated[str, Field(pattern="^[0-9a-f]{64}$", description="SHA-256 in hexadecimal.")]
if TYPE_CHECKING:
    Kind = str
else:
    Kind = Literal[tuple(PLACES)]
Parameter = str | int | float | bool | list[float] | None


class Shape(BaseModel):
    """Base: closed, so that a misspelt key is not ignored. The texts below the fields describe them."""

    model_config = ConfigDict(extra="forbid")

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Return the JSON schema with the texts of the fields."""
        found = handler(core_schema)
        properties = handler.resolve_ref_schema(found).get("properties", {})
        for name, text in field_texts(cls).items():
            properties[cls.model_fields[name].alias or name].setdefault("description", text)
        return found


class InputProblem(Shape):
    """What is wrong at one place of a request."""

    pointer: str
    """JSON pointer into the body; or a slash and the name of a parameter."""
    detail: str


class Problem(Shape):
    """RFC 9457. Texts name positions, names of the schema and rules, and never repeat what was sent."""

    type: Annotated[str, Field(json_schema_extra={"format": "uri"}, examples=["urn:oubli:problem:invalid-input"])]
    """Tells the kind of problem to a program."""
    title: str
    status: int
    detail: str
    errors: list[InputProblem] = []
    """What is wrong with the input; left out where it is not the input."""
    leader: str | None = None
    """Of `not-leader`: URL of the node that takes changes, null while none does; left out of other problems."""
