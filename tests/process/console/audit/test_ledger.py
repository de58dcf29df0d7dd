"""The view of the ledger, the keys and who may do what; by mouse and by keyboard."""

from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from oubli.app.ledger.downloads import check_ledger, read_lines
from tests.process.console.audit.worlds import ERASED, World
from tests.process.console.support import changed, looking, make_key, with_key
from tests.serving import Running


@pytest.mark.parametrize("uses_keys", [False, True], ids=["mouse", "keyboard"])
def test_the_timeline_the_chain_and_a_copy(browser: Browser, world: World, tmp_path: Path, uses_keys: bool) -> None:
    entries = world.entries()
    with looking(browser, world.server, uses_keys=uses_keys, view="") as console:
        console.go("Ledger and access")
        line = console.section("Timeline").locator(".ledger-entry")
        expect(line).to_have_count(len(entries))
        shown = [one.locator("strong").inner_text().lower().replace(" ", "-") for one in line.all()]
        assert shown == [entry["type"] for entry in entries][::-1]
        console.hand.press(line.first.locator("summary"))
        expect(line.first).to_contain_text(entries[-1]["hash"][:12])
        chain = console.section("The chain")
        console.hand.press(chain.get_by_role("button", name="Check all entries"))
        expect(chain).to_contain_text(f"All {len(entries)} entries are unchanged")
        expect(chain.get_by_title(entries[-1]["hash"])).to_be_visible()
        for key in world.public_keys():
            expect(console.section("Public keys")).to_contain_text(key["key_id"])
        expect(console.section("Access")).to_contain_text("This server needs no key")
        console.check_access()
        with console.page.expect_download() as download:
            console.hand.press(console.page.get_by_role("button", name="Download the ledger"))
        download.value.save_as(tmp_path / "ledger.jsonl")
        assert check_ledger(read_lines(tmp_path / "ledger.jsonl")).head.hash == entries[-1]["hash"]
        console.check_silence(*ERASED)


def test_a_broken_chain_is_found(browser: Browser, world: World) -> None:
    with looking(browser, world.server) as console:
        changed(console.page, "/ledger?*", lambda page: page["entries"].pop(1))
        console.open("ledger")
        chain = console.section("The chain")
        check = chain.get_by_role("button", name="Check all entries")
        check.click()
        expect(chain).to_contain_text("The chain is broken. Entry 2 is missing, or is not in its place.")
        console.page.unroute("**/ledger?*")
        check.click()
        expect(chain).to_contain_text("are unchanged")


def test_new_entries_come_by_themselves_and_old_ones_when_asked_for(browser: Browser, changing: World) -> None:
    while len(changing.entries()) < 60:
        changing.server.ask("POST", "/samples/batch-delete", {"ids": [changing.take()]})
    with looking(browser, changing.server, view="ledger") as console:
        line = console.section("Timeline").locator(".ledger-entry")
        expect(line.first.locator(".ledger-index")).to_have_text(str(len(changing.entries())))
        expect(line).to_have_count(50)
        changing.server.ask("POST", "/samples/batch-delete", {"ids": [changing.take()]})
        expect(line.first.locator(".ledger-index")).to_have_text(str(len(changing.entries())))
        console.section("Timeline").get_by_role("button", name="Show older").click()
        expect(line.last.locator(".ledger-index")).to_have_text("1")
        indexes = [int(one) for one in line.locator(".ledger-index").all_inner_texts()]
        assert indexes == list(range(len(indexes), 0, -1))


def test_keys_are_listed_for_an_administrator_alone(browser: Browser, guarded: Running) -> None:
    make_key(guarded, "predict")
    for scope in ("admin", "read"):
        with with_key(browser, guarded, scope, view="ledger") as console:
            console.go("Ledger and access")
            expect(console.section("Access")).to_contain_text("It may")
            keys = console.section("Access").get_by_role("table")
            if scope == "admin":
                expect(keys).to_contain_text("predict")
                expect(keys).to_contain_text("Live")
                console.check_access()
            else:
                expect(keys).to_have_count(0)
