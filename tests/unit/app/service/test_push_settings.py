"""What the settings say of webhooks and OpenDSR becomes who is told; what does not fit is refused at the start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oubli.app.service.build import processor_of, push_of
from oubli.app.settings import load_settings
from tests.unit.app.outgoing.certificates import authority, certificate

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
DOMAIN = "opendsr.processor.example"
CALLBACK = "https://controller.example/opendsr/callbacks"


def settings(folder: Path, **values: Any) -> Any:
    (folder / "secret").write_text(SECRET)
    return load_settings(data_dir=folder / "data", **values)


def test_webhooks(tmp_path):
    assert push_of(settings(tmp_path)) is None, "nobody is told unless it is set"
    push = push_of(
        settings(tmp_path, webhook_url="https://hooks.example/a?b=c", webhook_secret_file=tmp_path / "secret")
    )
    assert push is not None
    assert push.webhook is not None
    assert (push.webhook[0].host, push.webhook[0].target, push.targets) == ("hooks.example", "/a?b=c", ("webhook",))


def test_opendsr(tmp_path):
    assert processor_of(settings(tmp_path)) is None
    files = certificate(tmp_path, authority(), DOMAIN)
    given = settings(
        tmp_path,
        opendsr_domain=DOMAIN,
        opendsr_cert_file=files[0],
        opendsr_key_file=files[1],
        opendsr_callbacks=(CALLBACK,),
        opendsr_identities=("email",),
    )
    processor, push = processor_of(given), push_of(given)
    assert processor is not None
    assert push is not None
    assert push.targets == (), "receipts are told of to nobody"
    assert list(processor.callbacks) == [CALLBACK]
    assert tuple(processor.identities) == ("email",)
    assert processor.url == f"https://{DOMAIN}/opendsr/v2"
