"""`GET /access`: what a caller learns of keys."""

from __future__ import annotations

from pathlib import Path

from oubli.api.server import Access
from oubli.app.access.keys import FILE_NAME, create_key, now_ms, revoke_key
from oubli.app.access.scopes import SCOPES
from tests.unit.app.support import make_service, require_conforms, served


def test_without_keys_everybody_may_do_everything() -> None:
    with served(make_service()) as client:
        answer = client.get("/access").json()
        require_conforms(Access, answer)
        assert answer == {
            "asks_for_key": False, "id": None, "name": None, "scopes": list(SCOPES), "expires_at": None, "keys": [],
        }  # fmt: skip


def test_a_key_learns_its_scopes_and_admin_learns_all_keys(tmp_path: Path) -> None:
    path = tmp_path / FILE_NAME
    reader, text = create_key(path, name="reader", scopes=["read", "erase"], expires_ms=now_ms() + 10**7)
    admin, admin_text = create_key(path, name="chief", scopes=["admin"], expires_ms=None)
    old, _ = create_key(path, name="old", scopes=["predict"], expires_ms=now_ms() - 1)
    gone, _ = create_key(path, name="gone", scopes=["predict"], expires_ms=None)
    revoke_key(path, gone.id)
    (tmp_path / "api-key").write_text("0123456789abcdef-key")
    with served(make_service(), data_dir=tmp_path, api_key_file=tmp_path / "api-key") as client:

        def ask(key: str) -> dict[str, object]:
            answer = client.get("/access", headers={"Authorization": f"Bearer {key}"})
            assert answer.status_code == 200
            require_conforms(Access, answer.json())
            for secret in (text, admin_text, "0123456789abcdef-key"):
                assert secret.rpartition("_")[2] not in answer.text
            return dict(answer.json())

        assert client.get("/access").status_code == 401
        assert client.get("/access", headers={"X-API-Key": text[:-1] + "x"}).status_code == 401
        seen = ask(text)
        assert (seen["asks_for_key"], seen["id"], seen["name"]) == (True, reader.id, "reader")
        assert seen["scopes"] == ["erase", "read"]
        assert seen["expires_at"] is not None
        assert "keys" not in seen
        chief = ask(admin_text)
        assert (chief["name"], chief["scopes"]) == ("chief", list(SCOPES))
        listed = {one["id"]: one for one in chief["keys"]}  # type: ignore[attr-defined]
        assert {name: one["status"] for name, one in listed.items()} == {
            None: "live", reader.id: "live", admin.id: "live", old.id: "expired", gone.id: "revoked",
        }  # fmt: skip
        assert listed[reader.id]["scopes"] == ["erase", "read"]
        owner = ask("0123456789abcdef-key")
        assert (owner["id"], owner["name"], owner["scopes"]) == (None, "api_key", list(SCOPES))
