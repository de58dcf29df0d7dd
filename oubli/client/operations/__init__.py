"""Every operation of the client, once, as a flow that builds the request and reads the answer; see `messages`."""

from oubli.client.operations.evidence import erasure, erasures, keys, ledger, verify_receipt, wait_erased
from oubli.client.operations.health import is_alive, ready, wait_ready
from oubli.client.operations.job_progress import job, jobs, wait, watch
from oubli.client.operations.predictions import influence, predict
from oubli.client.operations.requests import send
from oubli.client.operations.sample_set import add, delete, get, replace, samples, samples_frame
from oubli.client.operations.snapshots import download_snapshot, newest_snapshot, restore_snapshot, snapshot
from oubli.client.operations.training import confirm_expiry, fit, model, schema, scrub, verify

__all__ = [
    "add",
    "confirm_expiry",
    "delete",
    "download_snapshot",
    "erasure",
    "erasures",
    "fit",
    "get",
    "influence",
    "is_alive",
    "job",
    "jobs",
    "keys",
    "ledger",
    "model",
    "newest_snapshot",
    "predict",
    "ready",
    "replace",
    "restore_snapshot",
    "samples",
    "samples_frame",
    "schema",
    "scrub",
    "send",
    "snapshot",
    "verify",
    "verify_receipt",
    "wait",
    "wait_erased",
    "wait_ready",
    "watch",
]
