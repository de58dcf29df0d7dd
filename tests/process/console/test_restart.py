"""A server that goes away while people look at it, and comes back."""

import signal
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Route, expect

from oubli.app.http.standby import Standby, bind
from oubli.app.settings import Settings
from tests.process.console.people import write_people
from tests.process.console.support import looking
from tests.serving import Running, Spawned, free_port, serving

ROW = [33, "cook", True]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_page_says_so_and_goes_on_by_itself(browser: Browser, tmp_path: Path, how: signal.Signals) -> None:
    flags = (*write_people(tmp_path), "--n-estimators", "3")
    port = free_port()
    with serving(*flags, cwd=tmp_path, port=port) as server, looking(browser, server) as console:
        page, state = console.page, console.page.locator(".shell-state")
        console.open()
        expect(state).to_have_text("Live")
        server.ask("POST", "/samples", {"samples": [{"id": "one more", "features": ROW, "label": "yes"}]})
        expect(page.locator(".now-count")).to_have_text("121")
        server.stop(how)
        expect(state).to_have_text("Reconnecting")
        expect(state).to_have_text("The server does not answer")
        expect(page.get_by_role("alert").filter(has_text="may show old values")).to_be_visible()
        expect(page.locator(".now-count")).to_have_text("121")
        console.check_access()
        console.go("Predict")
        expect(page.get_by_role("button", name="Try again").first).to_be_visible()
        with serving(*flags, cwd=tmp_path, port=port) as again:
            expect(state).to_have_text("Live", timeout=60_000)
            expect(page.get_by_role("alert").filter(has_text="may show old values")).to_have_count(0)
            expect(page.locator(".predict-label").first).not_to_be_empty()
            console.go("Now")
            expect(page.locator(".now-count")).to_have_text("121")
            again.ask("POST", "/samples/batch-delete", {"ids": ["one more"]})
            expect(page.locator(".now-count")).to_have_text("120")


def test_a_request_that_is_lost_while_others_are_answered_is_sent_again(browser: Browser, server: Running) -> None:
    asked: list[str] = []

    def lose_the_first(route: Route) -> None:
        asked.append(route.request.url)
        if len(asked) == 1:
            route.abort("connectionreset")
        else:
            route.continue_()

    with looking(browser, server) as console:
        console.page.route("**/predict", lose_the_first)
        console.open("predict")
        expect(console.page.locator(".predict-label")).not_to_be_empty()
        expect(console.page.get_by_role("alert")).to_have_count(0)
    assert len(asked) > 1


def test_a_server_that_still_starts_has_the_page_and_says_so(browser: Browser, tmp_path: Path) -> None:
    port = free_port()
    nobody = Spawned(["true"])
    nobody.wait()
    with looking(browser, Running(nobody, port, tmp_path)) as console:
        with Standby(bind("127.0.0.1", port), Settings(data_dir=tmp_path / "other")) as standby:
            standby.start("starting")
            console.open("predict")
            expect(console.page.get_by_text("The server is starting: it trains or reads its model.")).to_be_visible()
            console.check_access()
        with serving(*write_people(tmp_path), "--n-estimators", "2", cwd=tmp_path, port=port):
            expect(console.page.locator(".predict-label")).not_to_be_empty(timeout=90_000)
