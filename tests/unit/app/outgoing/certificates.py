"""An authority of our own, and certificates from it."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

_DAY = timedelta(days=1)
# Python 3.13 verifies as strictly as RFC 5280 asks: an authority says what its key is for, and keys are named.
_MAY_SIGN = x509.KeyUsage(
    key_cert_sign=True, crl_sign=True, digital_signature=False, content_commitment=False, key_encipherment=False,
    data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
)  # fmt: skip


@dataclass
class Authority:
    """Its certificate and key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def pem(self) -> str:
        return self.certificate.public_bytes(serialization.Encoding.PEM).decode()


def _named(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def _builder(issuer: x509.Name, subject: str, key: Any, *, ca: bool) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder(issuer, _named(subject), key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - _DAY).not_valid_after(now + _DAY)
    return builder.add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)


def authority() -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = _builder(_named("authority"), "authority", key, ca=True)
    builder = builder.add_extension(identifier, critical=False).add_extension(_MAY_SIGN, critical=True)
    return Authority(builder.sign(key, hashes.SHA256()), key)


def certificate(folder: Path, issuer: Authority, domain: str, kind: str = "ec") -> tuple[Path, Path]:
    """Write a certificate for a domain, or an address, and its key; return the two files."""
    key = ec.generate_private_key(ec.SECP256R1()) if kind == "ec" else rsa.generate_private_key(65537, 2048)
    builder = _builder(issuer.certificate.subject, domain, key, ca=False)
    name = x509.IPAddress(ip_address(domain)) if domain[0].isdigit() else x509.DNSName(domain)
    builder = builder.add_extension(x509.SubjectAlternativeName([name]), critical=False)
    by = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer.key.public_key())
    builder = builder.add_extension(by, critical=False)
    files = folder / "certificate.pem", folder / "key.pem"
    files[0].write_bytes(builder.sign(issuer.key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    files[1].write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return files
