"""What a receiver knows the sender by: Standard Webhooks with shared secrets, OpenDSR with a certificate's key."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa
from standardwebhooks import Webhook

from oubli.app.errors import StartError

SECRET_PREFIX = "whsec_"  # noqa: S105 - the beginning of every secret
_SHORTEST, _LONGEST = 24, 64  # bytes, by the standard
Headers = list[tuple[str, str]]


class WebhookSigner:
    """Signs messages as Standard Webhooks has them: `webhook-id`, `webhook-timestamp` and `webhook-signature`.

    Parameters
    ----------
    secrets
        As they are written, `whsec_...`. There is a signature for each, so that receivers can change from one to the
        next.

    Raises
    ------
    ValueError
        When one is none; the text does not repeat it.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        for secret in secrets:
            try:
                raw = base64.b64decode(secret.removeprefix(SECRET_PREFIX) + "==", validate=False)
            except (binascii.Error, ValueError):
                raw = b""
            if not secret.startswith(SECRET_PREFIX) or not _SHORTEST <= len(raw) <= _LONGEST:
                raise ValueError(f"must be {SECRET_PREFIX} and the base64 of {_SHORTEST} to {_LONGEST} bytes")
        if not secrets:
            raise ValueError("holds no secret")
        self._hooks = [Webhook(secret) for secret in secrets]

    def headers(self, message_id: str, at: float, body: bytes) -> Headers:
        """Return the headers of an attempt.

        Parameters
        ----------
        message_id
            The same for each attempt.
        at
            When the attempt is made, in seconds since 1970.
        body
            Exactly what is sent.
        """
        moment, text = datetime.fromtimestamp(int(at), UTC), body.decode("utf-8")
        return [
            ("webhook-id", message_id),
            ("webhook-timestamp", str(int(at))),
            ("webhook-signature", " ".join(hook.sign(message_id, moment, text) for hook in self._hooks)),
        ]


def read_secrets(path: Path) -> WebhookSigner:
    """Return the signer for the secrets in a file, one a line.

    Raises
    ------
    StartError
        When the file cannot be read or holds something else; the text names the file only.
    """
    try:
        lines = path.read_text(encoding="ascii").split()
        return WebhookSigner(lines)
    except OSError as error:
        raise StartError(f"webhook_secret_file {path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise StartError(
            f"webhook_secret_file {path} must hold secrets as Standard Webhooks has them, one a line: {SECRET_PREFIX} "
            f"and the base64 of {_SHORTEST} to {_LONGEST} bytes; `echo {SECRET_PREFIX}$(openssl rand -base64 32)` "
            "makes one"
        ) from None


class ProcessorSigner:
    """Signs what OpenDSR has a processor sign: answers and callbacks, with the key of its certificate.

    Parameters
    ----------
    domain
        That the certificate is for.
    certificate
        The chain, in PEM.
    key
        Its private key.
    """

    def __init__(self, domain: str, certificate: bytes, key: rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey) -> None:
        self.domain = domain
        self.certificate = certificate
        self._key = key

    def headers(self, body: bytes) -> Headers:
        """Return the headers that a body is sent with. Signing with RSA takes a millisecond."""
        return [("X-OpenDSR-Processor-Domain", self.domain), ("X-OpenDSR-Signature", self.sign(body))]

    def sign(self, body: bytes) -> str:
        """Return the signature of the SHA-256 of a body, in base64."""
        if isinstance(self._key, rsa.RSAPrivateKey):
            signature = self._key.sign(body, padding.PKCS1v15(), hashes.SHA256())
        else:
            signature = self._key.sign(body, ec.ECDSA(hashes.SHA256()))
        return base64.b64encode(signature).decode("ascii")


def read_processor(domain: str, certificate_file: Path, key_file: Path) -> ProcessorSigner:
    """Return the signer for a certificate and its key, in PEM files.

    Raises
    ------
    StartError
        When they cannot be read, do not belong together, or the certificate is not for the domain.
    """
    named = f"opendsr_cert_file {certificate_file} and opendsr_key_file {key_file}"
    try:
        chain = certificate_file.read_bytes()
        certificate = x509.load_pem_x509_certificates(chain)[0]
        key = serialization.load_pem_private_key(key_file.read_bytes(), None)
    except OSError as error:
        raise StartError(f"{named} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError):  # TypeError: a passphrase is needed
        raise StartError(f"{named} must hold a certificate chain and its key without a passphrase, in PEM") from None
    if not isinstance(key, rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey):
        raise StartError(f"{named}: OpenDSR signs with RSA or ECDSA, give a key of one of these kinds")
    if key.public_key() != certificate.public_key():
        raise StartError(f"{named} do not belong together")
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        known = [name.lower() for name in names.get_values_for_type(x509.DNSName)]
    except x509.ExtensionNotFound:
        known = []
    if domain not in known:
        raise StartError(f"{named}: the certificate does not name the domain in opendsr_domain")
    return ProcessorSigner(domain, chain, key)
