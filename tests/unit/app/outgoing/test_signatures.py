"""What receivers check: the vectors of Standard Webhooks, its own library, and OpenDSR's certificate."""

import base64
import re
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
DOMAIN = "opendsr.processor.example"
OTHER = f"whsec_{base64.b64encode(bytes(range(32))).decode()}"


def test_the_published_vector():
    name, at, signature = "msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    headers = WebhookSigner([SECRET]).headers(name, at, b'{"test": 2432232314}')
    assert headers == [("webhook-id", name), ("webhook-timestamp", str(at)), ("webhook-signature", signature)]


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
        assert not re.search("MfKQ|SECRET", str(refused.value))


@pytest.mark.parametrize("kind", ["rsa", "ec"])
def test_opendsr_signatures_are_checked_with_the_certificate(tmp_path, kind):
    signer = read_processor(DOMAIN, *certificate(tmp_path, authority(), DOMAIN, kind=kind))
    key = load_pem_x509_certificate(signer.certificate).public_key()
    body = secrets.token_bytes(100)
    named = dict(signer.headers(body))
    assert named["X-OpenDSR-Processor-Domain"] == DOMAIN
    signature = base64.b64decode(named["X-OpenDSR-Signature"])
    more = (ec.ECDSA(hashes.SHA256()),) if kind == "ec" else (padding.PKCS1v15(), hashes.SHA256())
    key.verify(signature, body, *more)
    with pytest.raises(InvalidSignature):
        key.verify(signature, body + b".", *more)


def test_certificates_that_opendsr_cannot_be_signed_with(tmp_path):
    (tmp_path / "two").mkdir()
    one, two = (certificate(folder, authority(), DOMAIN) for folder in (tmp_path, tmp_path / "two"))
    for key_file, domain, why in (
        (two[1], DOMAIN, "belong together"),
        (one[1], "another.example", "does not name the domain"),
        (one[0], DOMAIN, "cannot be used: give a certificate chain"),
        (tmp_path / "none", DOMAIN, "cannot be read"),
    ):
        with pytest.raises(StartError, match=why):
            read_processor(domain, one[0], key_file)
    key = serialization.load_pem_private_key(one[1].read_bytes(), None)
    written = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    one[1].write_bytes(key.private_bytes(*written, serialization.BestAvailableEncryption(b"x")))
    with pytest.raises(StartError, match="passphrase"):
        read_processor(DOMAIN, *one)
