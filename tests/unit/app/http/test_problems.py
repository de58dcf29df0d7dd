import orjson
import pytest

from oubli.app import errors
from oubli.app.http.problems import KINDS, MEDIA_TYPE, ProblemError, pointer, to_problem
from oubli.core.errors import CapacityError, EmptyModelError, FileError, InputError, UnknownIdError, UnusableModelError


@pytest.mark.parametrize("slug", KINDS)
def test_every_kind_has_the_one_shape(slug):
    response = ProblemError(slug, errors=KINDS[slug].example).response()
    body = orjson.loads(response.body)
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.status_code == body["status"] == KINDS[slug].status
    assert body["type"].endswith(":" + slug)
    assert body["title"]
    assert body["detail"].endswith(".")


def test_a_retry_is_told_when():
    for slug in ("queue-full", "not-ready", "storage"):
        assert int(ProblemError(slug).response().headers["retry-after"]) > 0


@pytest.mark.parametrize(
    ("error", "slug"),
    [
        (errors.BusyError(), "queue-full"),
        (errors.UnavailableError("starting"), "not-ready"),
        (errors.UnavailableError("failed"), "changes-stopped"),
        (errors.ConflictError([3]), "id-conflict"),
        (errors.NotHeldError(), "not-held"),
        (errors.NoSnapshotError(), "no-snapshot"),
        (errors.EphemeralError(), "ephemeral"),
        (errors.StorageError("No space left on device"), "storage"),
        (errors.StaleCursorError(), "invalid-input"),
        (EmptyModelError("no samples left"), "empty-model"),
        (CapacityError("SECRET"), "capacity"),
        (UnusableModelError(), "model-unusable"),
        (FileError("is truncated: take another copy"), "unreadable-file"),
        (InputError("must be a number", row=3, field="age", value="SECRET"), "invalid-input"),
    ],
)
def test_errors_become_problems_without_their_text(error, slug):
    problem = to_problem(error)
    assert problem is not None
    assert problem.kind.slug == slug
    assert "SECRET" not in str(problem.content())


@pytest.mark.parametrize("error", [UnknownIdError(["SECRET"]), ValueError("SECRET"), errors.ServiceError("SECRET")])
def test_what_nobody_expected_is_no_problem(error):
    assert to_problem(error) is None


def test_pointers_are_escaped():
    assert pointer("samples", 0, "features", "a/b~c") == "/samples/0/features/a~1b~0c"
