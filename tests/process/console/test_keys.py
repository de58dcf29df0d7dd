"""The console of a server that asks for keys: what a key may not do is not shown."""

from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect

from tests.process.console.people import write_people
from tests.process.console.support import Console, agree, looking, make_key, with_key
from tests.servers import module_server
from tests.serving import Running, run_cli

NOW, PREDICT, SAMPLES = "Now", "Predict", "Samples and people"
WRONG = "oubli_00000000_" + 64 * "0"


def with_a_key_file(folder: Path) -> tuple[str, ...]:
    (folder / "key").write_text("the-key-of-the-operator")
    return (*write_people(folder), "--n-estimators", "3", "--api-key-file", str(folder / "key"))


server = module_server(with_a_key_file)


def views(page: Page) -> list[str]:
    return page.get_by_role("navigation").get_by_role("link").all_inner_texts()


def test_without_a_key_nothing_is_shown_and_a_wrong_one_is_refused(console: Console, server: Running) -> None:
    console.open("samples")
    page = console.page
    expect(page.get_by_role("heading", name="A key is needed")).to_be_visible()
    assert views(page) == []
    console.check_access()
    console.enter_key(WRONG)
    expect(page.get_by_text("The server does not know this key")).to_be_visible()
    expect(page.get_by_label("Key", exact=True)).to_have_attribute("aria-invalid", "true")
    assert "person" not in page.content()
    console.enter_key("the-key-of-the-operator")
    expect(console.heading(SAMPLES)).to_be_visible()
    console.check_silence(WRONG, "the-key-of-the-operator")
    console.hand.press(page.get_by_role("button", name="Forget the key"))
    expect(page.get_by_role("heading", name="A key is needed")).to_be_visible()
    assert "person" not in page.content()
    console.open("now")
    console.enter_key(make_key(server, "predict"))
    expect(console.section("Model")).to_contain_text("forest")
    assert "Digest" not in page.content(), "that was for the key before"
    page.reload()
    expect(page.get_by_role("heading", name="A key is needed")).to_be_visible()


def test_a_key_for_predictions_shows_two_views(browser: Browser, server: Running) -> None:
    with with_key(browser, server, "predict") as console:
        expect(console.heading(NOW)).to_be_visible()
        assert [view for view in views(console.page) if view in (NOW, PREDICT, SAMPLES)] == [NOW, PREDICT]
        expect(console.page.locator(".now-count")).to_have_text("120")
        console.go(PREDICT)
        console.hand.fill(console.page.get_by_label("age", exact=True), "30")
        expect(console.page.locator(".predict-label")).not_to_be_empty()
        assert "Why" not in console.page.get_by_role("heading").all_inner_texts()
        console.check_access()
        asked = {urlsplit(one.url).path for one in console.requests}
        assert not [path for path in asked if path.startswith(("/samples", "/influence"))]


@pytest.mark.parametrize(
    ("scopes", "shown", "hidden"),
    [
        (("read",), {"Find", "Export"}, {"Forget", "Restrict", "Add the sample"}),
        (("erase",), {"Forget", "Restrict", "Release"}, {"Find", "Export", "Add the sample"}),
        (("write",), {"Add the sample"}, {"Find", "Forget", "Export"}),
        (("read", "write", "erase"), {"Find", "Export", "Forget", "Restrict", "Add the sample"}, set()),
    ],
)
def test_a_key_shows_what_it_may_do(
    browser: Browser, server: Running, scopes: tuple[str, ...], shown: set[str], hidden: set[str]
) -> None:
    with with_key(browser, server, *scopes) as console:
        console.go(SAMPLES)
        if "write" in scopes:
            console.hand.press(console.page.get_by_text("One sample"))
            expect(console.page.get_by_role("button", name="Add the sample", exact=True)).to_be_visible()
        assert shown <= console.actions()
        assert not hidden & console.actions()
        console.check_access()


def test_a_key_that_only_erases_forgets_a_person_without_seeing_anything(browser: Browser, server: Running) -> None:
    with with_key(browser, server, "erase", uses_keys=True) as console:
        console.go(SAMPLES)
        section = console.section("Find")
        console.hand.fill(section.get_by_label("Subject or id"), "person 7")
        agree(console, section.get_by_role("button", name="Forget"), "Forget this person?", "Forget the person")
        expect(section.locator("receipt-card")).to_contain_text("2 samples (exact)")
        console.check_silence("person 7", "person%207", "person+7")


def test_a_key_that_is_revoked_meanwhile_is_asked_for_again(browser: Browser, server: Running) -> None:
    key = make_key(server, "read", "predict")
    with looking(browser, server) as console:
        ended: list[Request] = []
        for event in ("requestfinished", "requestfailed"):
            console.page.on(event, lambda request: ended.append(request))  # type: ignore[call-overload]
        console.open("predict")
        console.enter_key(key)
        expect(console.page.locator(".predict-label")).not_to_be_empty()
        run_cli("keys", "revoke", key.split("_")[1], "--data-dir", "oubli-data", cwd=server.folder)
        console.page.wait_for_timeout(1500)  # a server looks once a second
        console.page.evaluate("document.querySelector('.row .button')?.click()")  # Another row
        expect(console.page.get_by_role("heading", name="A key is needed")).to_be_visible()
        expect(console.page.get_by_text("The key was revoked, or it has expired.")).to_be_visible()
        console.check_access()
        assert "person" not in console.page.content()
        console.page.wait_for_timeout(300)
        streams = [one for one in console.requests if one.url.endswith("/events")]
        assert streams
        assert [one for one in streams if one not in ended] == [], "a stream continues"
        # Whatever wakes the page up, it does not send the key again, and keeps what is being typed.
        field = console.page.get_by_label("Key", exact=True)
        field.fill("half a k")
        n_sent = len(console.requests)
        for node, event in (("window", "online"), ("document", "visibilitychange")):
            console.page.evaluate(f"{node}.dispatchEvent(new Event('{event}'))")
        console.page.wait_for_timeout(1000)
        assert [one.url for one in console.requests[n_sent:] if key in one.headers.get("authorization", "")] == []
        expect(field).to_have_value("half a k")
        console.enter_key("the-key-of-the-operator")
        expect(console.heading(PREDICT)).to_be_visible()
        console.check_silence(key)


def test_a_dialog_does_not_outlive_its_key(browser: Browser, server: Running) -> None:
    key = make_key(server, "read", "erase")
    with looking(browser, server, view="samples") as console:
        console.enter_key(key)
        console.section("Held").get_by_role("button", name="s3", exact=True).click()
        dialog = console.page.get_by_role("dialog")
        expect(dialog).to_contain_text("person 1")
        run_cli("keys", "revoke", key.split("_")[1], "--data-dir", "oubli-data", cwd=server.folder)
        console.page.wait_for_timeout(1500)
        # Asks how many samples are held, unless the end of the streams was first.
        console.page.evaluate("document.querySelector('dialog .row:last-child .button-danger')?.click()")
        expect(console.page.get_by_role("heading", name="A key is needed")).to_be_visible()
        expect(dialog).to_have_count(0)
        assert "person" not in console.page.content()
