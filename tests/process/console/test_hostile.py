"""Hostile names and texts are shown as text, and do nothing."""

import re

import pytest
from playwright.sync_api import Browser, expect

from tests.process.console.people import HOSTILE, write_hostile
from tests.process.console.support import NARROW, looking
from tests.servers import module_server
from tests.serving import Running

server = module_server(lambda folder: (*write_hostile(folder), "--n-estimators", "3"))
MARKS = re.compile(r"[\u0000-\u001f\u007f-\u009f\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]")


def as_shown(text: str) -> str:
    """Return a text as the page writes it: marks that cannot be seen are written as their numbers."""
    return MARKS.sub(lambda found: f"⟨{ord(found[0]):04x}⟩", text)


def test_names_and_texts_are_text_in_all_views(browser: Browser, server: Running) -> None:
    with looking(browser, server, viewport=NARROW) as console:
        page = console.page
        for view in ("now", "predict", "samples"):
            console.open(view)
            page.reload()
            expect(page.get_by_role("heading", level=1)).to_be_visible()
            expect(page.locator(".state-loading")).to_have_count(0)
            console.check_fits()
            assert page.locator("main img, main script, main a[href^='javascript']").count() == 0
        features = [feature["name"] for feature in server.get("/model")[1]["features"]]
        console.open("predict")
        for name in features:
            expect(page.get_by_text(as_shown(name), exact=True).first).to_be_visible()
        console.check_access()
        assert "Oubli" in page.title()


@pytest.mark.parametrize("subject", HOSTILE)
def test_a_person_with_a_hostile_name_is_found_and_forgotten(browser: Browser, server: Running, subject: str) -> None:
    with looking(browser, server) as console:
        page = console.page
        body = {"subject": subject}
        before = server.ask("POST", "/samples/search", body)[1]["samples"]
        console.open("samples")
        section, found = console.section("Find"), console.section("Held")
        if "\n" in subject:  # a field of one line cannot hold it; the list can
            opening = "(id) => import('/console/views/sample-sheet.js').then((sheets) => { sheets.openSample(id); })"
            page.evaluate(opening, before[0]["id"])
        else:
            console.hand.fill(section.get_by_label("Subject or id"), subject)
            console.hand.press(section.get_by_role("button", name="Find"))
            expect(found.get_by_role("row")).to_have_count(len(before) + 1)
            found.get_by_role("row").nth(1).get_by_role("button").click()
        sheet = page.get_by_role("dialog", name="Sample", exact=True)
        expect(sheet.get_by_text(as_shown(subject), exact=True).first).to_be_visible()
        console.check_fits()
        sheet.get_by_role("button", name="Forget the person").click()
        dialog = page.get_by_role("dialog", name="Forget this person?")
        expect(dialog).to_contain_text(as_shown(subject).replace("\n", " "))
        dialog.get_by_role("button", name="Forget the person").click()
        expect(sheet.locator("receipt-card")).to_contain_text(f"{len(before)} samples (exact)")
        assert server.ask("POST", "/samples/search", body)[1]["samples"] == []
        assert page.locator("main img, main script, dialog img, dialog script").count() == 0
        assert page.title() == "Samples and people · Oubli"
        if len(subject) > 12:  # shorter ones are in addresses by chance
            console.check_silence(subject)
