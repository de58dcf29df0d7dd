"""What keys may be allowed to do, and what each route asks for.

    predict    POST /predict and below /v2
    explain    POST /explain, which shows more of the samples than predictions do
    write      add and rectify samples
    erase      delete samples, restrict and release subjects, say how long theirs are kept, and see what became of it;
               no sample can be read with it
    read       samples, bundles, snapshots, receipts, the ledger, influence, trees, what changes
    audit      samples, and the openings of samples and of erasures; states of the model
    admin      all of these, and what concerns the model as a whole

A path is written here as the application sees it, percent-decoded. A path that is not listed needs a key, any key. This
includes paths without a route, so that a caller without a key cannot find out which paths have one.
"""

from urllib.parse import parse_qsl

ADMIN = "admin"
SCOPES = ("predict", "explain", "write", "erase", "read", "audit", ADMIN)
ALL_SCOPES = frozenset(SCOPES)
EVENTS = "/events"
METRICS_EVENTS = "/events?topic=metrics"
"""Stands for the path of a stream of metrics, which holds nothing of the samples."""

_PREDICT = frozenset({"predict"})
_WRITE = frozenset({"write"})
_ERASE = frozenset({"erase"})
_READ = frozenset({"read"})
_RECEIPTS = frozenset({"erase", "read"})
_OPENINGS = frozenset({"erase", "audit"})
# Who may ask whether a name is held.
_ABSENCE = frozenset({"erase", "read", "audit"})
_SAMPLES = frozenset({"read", "audit"})
AUDIT = frozenset({"audit"})
_ADMIN = frozenset({ADMIN})
ANY_KEY: frozenset[str] = frozenset()

_ROUTES: dict[tuple[str, str], frozenset[str]] = {
    ("POST", "/predict"): _PREDICT,
    ("POST", "/explain"): frozenset({"explain"}),
    ("POST", "/samples"): _WRITE,
    ("POST", "/samples/search"): _READ,
    ("POST", "/samples/batch-delete"): _ERASE,
    ("POST", "/samples/absence-proofs"): _ABSENCE,
    ("DELETE", "/samples"): _ERASE,
    ("PUT", "/samples"): _WRITE,
    # With openings it is `audit` alone.
    ("GET", "/samples"): _SAMPLES,
    ("POST", "/subjects/restrict"): _ERASE,
    ("POST", "/subjects/release"): _ERASE,
    ("POST", "/subjects/retain"): _ERASE,
    ("POST", "/subjects/export"): _READ,
    ("GET", "/erasures"): _RECEIPTS,
    ("GET", "/webhooks/dead-letters"): _RECEIPTS,
    # Which of the two it is depends on what is asked for.
    ("POST", "/opendsr/v2/requests"): _RECEIPTS,
    ("GET", "/ledger"): _READ,
    ("GET", "/ledger/consistency"): _READ,
    ("GET", "/log/checkpoint"): ANY_KEY,
    ("GET", "/snapshot"): _READ,
    ("POST", "/snapshot"): _ADMIN,
    ("GET", "/snapshot/file"): _READ,
    ("PUT", "/snapshot/file"): _ADMIN,
    ("POST", "/influence"): _READ,
    ("POST", "/predict/without"): _READ,
    ("GET", "/model/importances"): _READ,
    ("GET", "/model/columns"): _READ,
    ("GET", "/model/kinds"): ANY_KEY,
    ("GET", "/events"): _READ,
    ("GET", METRICS_EVENTS): ANY_KEY,
    ("GET", "/access"): ANY_KEY,
    ("GET", "/cluster"): ANY_KEY,
    ("POST", "/expiry/confirm"): _ADMIN,
    ("GET", "/model/states"): AUDIT,
    ("POST", "/model/states"): AUDIT,
    ("GET", "/model"): ANY_KEY,
    ("GET", "/openapi.json"): ANY_KEY,
    ("GET", "/metrics"): ANY_KEY,
    ("GET", "/jobs"): ANY_KEY,
    ("GET", "/v2"): ANY_KEY,
}
_FOLDERS: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("GET", "/openapi/", ANY_KEY),
    ("DELETE", "/samples/", _ERASE),
    ("PUT", "/samples/", _WRITE),
    ("GET", "/samples/", _READ),
    ("GET", "/erasures/", _RECEIPTS),
    ("GET", "/ledger/", _READ),
    ("GET", "/log/tile/", _READ),
    ("POST", "/webhooks/dead-letters/", _ADMIN),
    ("GET", "/opendsr/v2/requests/", _RECEIPTS),
    ("DELETE", "/opendsr/v2/requests/", _RECEIPTS),
    ("GET", "/model/trees/", _READ),
    ("GET", "/model/states/", AUDIT),
    ("POST", "/model/", _ADMIN),
    ("DELETE", "/cluster/nodes/", _ADMIN),
    ("GET", "/jobs/", ANY_KEY),
    ("DELETE", "/jobs/", _READ),
    ("GET", "/v2/models/", ANY_KEY),
    ("POST", "/v2/models/", _PREDICT),
)


def resource_of(path: str, query: bytes) -> str:
    """Return what the access rules know a request by: its path, or for a stream of metrics `METRICS_EVENTS`."""
    if path != EVENTS:
        return path
    topics = [value for name, value in parse_qsl(query) if name == b"topic"]
    return METRICS_EVENTS if topics == [b"metrics"] else path


def needed_scopes(method: str, path: str) -> frozenset[str]:
    """Return the scopes of which a key must have one; none of them: any key will do."""
    rule = rule_for(method, path)
    return ANY_KEY if rule is None else rule


def rule_for(method: str, path: str) -> frozenset[str] | None:
    """Return what is written down for a route; None when nothing is."""
    if method == "HEAD":
        method = "GET"
    found = _ROUTES.get((method, path))
    if found is not None:
        return found
    if method == "GET" and path.startswith("/erasures/") and path.endswith("/opening"):
        return _OPENINGS
    if method == "GET" and path.startswith("/jobs/") and path.endswith("/result"):
        return _READ
    for of_method, folder, scopes in _FOLDERS:
        if method == of_method and path.startswith(folder):
            return scopes
    return None
