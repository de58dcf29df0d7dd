"""What receivers check: the vectors of Standard Webhooks, its own library, and OpenDSR's certificate."""

from __future__ import annotations

import base64
import secrets
import time

import pytest
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.x509 import load_pem_x509_certificate
from standardwebhooks import Webhook

from oubli.app.errors import StartError
from oubli.app.outgoing.sender import WebhookSigner, read_processor, read_secrets
from tests.unit.app.outgoing.certificates import authority, certificate

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


def test_the_published_vector():
    headers = WebhookSigner([SECRET]).headers("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, b'{"test": 2432232314}')
    assert headers == [
        ("webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"),
        ("webhook-timestamp", "1614265330"),
        ("webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="),
    ]


def test_receivers_check_with_either_secret_while_they_change():
    body = b'{"type":"erasure.erased","data":{"status":"erased"}}'
    headers = dict(WebhookSigner([SECRET, OTHER]).headers("one-erased", time.time(), body))
    for secret in (SECRET, OTHER):
        assert Webhook(secret).verify(body, headers)["data"] == {"status": "erased"}
    assert len(headers["webhook-signature"].split(" ")) == 2


def test_a_file_of_secrets(tmp_path):
    path = tmp_path / "secrets"
    path.write_text(f"{SECRET}\n{OTHER}\n")
    body = b"{}"
    assert read_secrets(path).headers("a", 1, body) == WebhookSigner([SECRET, OTHER]).headers("a", 1, body)
    with pytest.raises(StartError, match="cannot be read"):
        read_secrets(tmp_path / "none")
    for text in ("", "SECRET", "whsec_", "whsec_AAAA", "whsec_" + "A" * 100, "whsec_ä", f"{SECRET}\nx"):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(StartError) as refused:
            read_secrets(path)
        assert "MfKQ" not in str(refused.value)
        assert "SECRET" not in str(refused.value)


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_opendsr_signatures_are_checked_with_the_certificate(tmp_path, kind):
    files = certificate(tmp_path, authority(), "opendsr.processor.example", kind=kind)
    signer = read_processor("opendsr.processor.example", *files)
    key = load_pem_x509_certificate(signer.certificate).public_key()
    body = secrets.token_bytes(100)
    named = dict(signer.headers(body))
    assert named["X-OpenDSR-Processor-Domain"] == "opendsr.processor.example"
    signature = base64.b64decode(named["X-OpenDSR-Signature"])
    more = (ec.ECDSA(hashes.SHA256()),) if kind == "ec" else (padding.PKCS1v15(), hashes.SHA256())
    key.verify(signature, body, *more)
    with pytest.raises(InvalidSignature):
        key.verify(signature, body + b".", *more)


def test_certificates_that_opendsr_cannot_be_signed_with(tmp_path):
    issuer = authority()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = certificate(tmp_path / "one", issuer, "opendsr.processor.example")
    two = certificate(tmp_path / "two", issuer, "opendsr.processor.example")
    for files, domain, why in (
        ((one[0], two[1]), "opendsr.processor.example", "belong together"),
        (one, "another.example", "does not name the domain"),
        ((one[0], one[0]), "opendsr.processor.example", "cannot be used: give a certificate chain"),
        ((one[0], tmp_path / "none"), "opendsr.processor.example", "cannot be read"),
    ):
        with pytest.raises(StartError, match=why):
            read_processor(domain, *files)
    locked = serialization.load_pem_private_key(one[1].read_bytes(), None).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.BestAvailableEncryption(b"x")
    )
    one[1].write_bytes(locked)
    with pytest.raises(StartError, match="passphrase"):
        read_processor("opendsr.processor.example", *one)
