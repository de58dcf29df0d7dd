"""People in front of the console: a page, and a hand that uses the mouse or the keyboard."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, Route, expect

from tests.serving import Running, run_cli, wait_for

MOST_TABS = 250  # keys until something has the focus
WIDE = {"width": 1440, "height": 900}
NARROW = {"width": 360, "height": 740}
RULES = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"]

STORED = """async () => JSON.stringify([
    {...localStorage}, {...sessionStorage}, document.cookie, location.href, history.state,
    await indexedDB.databases(), await caches.keys()])"""


@dataclass
class Hand:
    """Uses controls with the mouse, or by nothing but the keyboard."""

    page: Page
    uses_keys: bool = False

    def press(self, control: Locator) -> None:
        """Use a button, a link, a summary or a checkbox."""
        expect(control).to_be_visible()
        if not self.uses_keys:
            control.click()
            return
        self.reach(control)
        is_button = control.evaluate("node => node.matches('button, summary, input')")
        self.page.keyboard.press("Space" if is_button else "Enter")

    def fill(self, control: Locator, text: str) -> None:
        """Write into a field, in the place of what is there."""
        if not self.uses_keys:
            control.fill(text)
            return
        self.reach(control)
        self.page.keyboard.press("ControlOrMeta+A")
        self.page.keyboard.insert_text(text)

    def choose(self, control: Locator, label: str) -> None:
        """Choose an option."""
        if not self.uses_keys:
            control.select_option(label=label)
            return
        self.reach(control)
        self.page.keyboard.type(label)

    def reach(self, control: Locator) -> None:
        """Move the focus to a control as the Tab key does, which must show where it is."""
        for _ in range(MOST_TABS):
            if control.evaluate("node => node === document.activeElement"):
                outline = control.evaluate("node => getComputedStyle(node).outlineStyle")
                assert outline != "none", "nobody sees where the focus is"
                return
            self.page.keyboard.press("Tab")
        raise AssertionError(f"the keyboard does not come to {control}")


@dataclass
class Console:
    """The console of a server in a page.

    Attributes
    ----------
    requests
        All that it has sent.
    complaints
        Errors of its scripts, and what the browser has refused.
    """

    page: Page
    server: Running
    hand: Hand
    requests: list[Request] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        # A server names the columns of its data as it starts, which may be called as somebody is.
        self._log_before = len(self.server.output)
        self.page.on("request", lambda request: self.requests.append(request))
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("console", self._note)

    def open(self, view: str = "") -> None:
        """Go to a view."""
        self.page.goto(f"{self.server.url}/{f'#{view}' if view else ''}")

    def enter_key(self, key: str) -> None:
        """Give a key where one is asked for."""
        self.hand.fill(self.page.get_by_label("Key", exact=True), key)
        self.hand.press(self.page.get_by_role("button", name="Use the key"))

    def go(self, title: str) -> None:
        """Go to a view by the navigation."""
        self.hand.press(self.page.get_by_role("navigation").get_by_role("link", name=title))
        expect(self.heading(title)).to_be_visible()

    def heading(self, title: str) -> Locator:
        return self.page.get_by_role("heading", level=1, name=title)

    def section(self, title: str) -> Locator:
        return self.page.get_by_role("region", name=title, exact=True)

    def actions(self) -> set[str]:
        """Return what the view lets one do."""
        return {text for text in self.page.get_by_role("main").get_by_role("button").all_inner_texts() if text}

    def check_access(self) -> None:
        """Have axe look for what keeps people from using the page."""
        found = Axe().run(self.page, options={"runOnly": {"type": "tag", "values": RULES}})
        assert found.violations_count == 0, found.generate_report()

    def check_fits(self) -> None:
        """Nothing is wider than the page."""
        wide = self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        assert wide <= 0, f"the page is {wide} pixels too wide"

    def check_silence(self, *secrets: str) -> None:
        """No secret is in an address, in storage or in a log, and no other host was asked."""
        addresses = [one.url for one in self.requests]
        hosts = {urlsplit(one).netloc for one in addresses if one.startswith("http")}
        assert hosts == {f"127.0.0.1:{self.server.port}"}
        stored = self.page.evaluate(STORED)
        assert stored.startswith('[{},{},"",'), stored
        log = self.server.output[self._log_before :]
        for secret in secrets:
            assert secret not in self.page.url
            assert secret not in stored
            assert secret not in log
            assert not [one for one in addresses if secret in one or json.dumps(secret)[1:-1] in one]

    def _note(self, message: ConsoleMessage) -> None:
        # The browser tells of each request that is refused or not answered; what the page makes of it is tested.
        if message.type in ("error", "warning") and not message.text.startswith("Failed to load resource"):
            self.complaints.append(message.text)


@contextmanager
def looking(
    browser: Browser, server: Running, *, view: str | None = None, uses_keys: bool = False, **how: Any
) -> Iterator[Console]:
    """Have a page of a browser that remembers nothing, at a view of the console if one is named, until the end.

    What else there is to set, such as the viewport, has the name that Playwright gives it. Nothing may fail in the
    scripts of the page, and the browser may refuse nothing.
    """
    with browser.new_context(**{"viewport": WIDE, **how}, timezone_id="Asia/Kolkata", locale="en-GB") as context:
        page = context.new_page()
        console = Console(page, server, Hand(page, uses_keys))
        if view is not None:
            console.open(view)
        yield console
        assert console.complaints == []


def make_key(server: Running, *scopes: str) -> str:
    """Make a key of a server's data directory, and return it when the server knows it."""
    arguments = ("keys", "create", "--scopes", ",".join(scopes), "--name", "test", "--data-dir", "oubli-data")
    done = run_cli(*arguments, cwd=server.folder)
    assert done.returncode == 0, done.stderr
    key = done.stdout.strip()

    def is_known() -> bool:
        status, told = server.ask("GET", "/access", Authorization=f"Bearer {key}")
        return status == 200 and told["name"] == "test"

    wait_for(is_known, "the server knows the key", pause=0.05)  # it looks every 50 ms at most
    return key


@contextmanager
def with_key(browser: Browser, server: Running, *scopes: str, view: str = "", **how: Any) -> Iterator[Console]:
    """Have a page at a view, and give it a new key with some scopes, which must stay a secret."""
    key = make_key(server, *scopes)
    with looking(browser, server, view=view, **how) as console:
        console.enter_key(key)
        yield console
        console.check_silence(key)
        assert key not in console.page.content()


def changed(page: Page, path: str, change: Callable[[Any], object]) -> None:
    """Have answers to a path changed on their way."""

    def answer(route: Route) -> None:
        response = route.fetch()
        content = response.json()
        change(content)
        route.fulfill(response=response, json=content)

    page.route(f"**{path}", answer)


def find(console: Console, kind: str, name: str) -> Locator:
    """Find by subject or id, and return what is found."""
    section = console.section("Find")
    console.hand.choose(section.get_by_label("Find by"), kind)
    console.hand.fill(section.get_by_label("Subject or id"), name)
    console.hand.press(section.get_by_role("button", name="Find"))
    return console.section("Held")


def agree(console: Console, button: Locator, title: str, action: str) -> None:
    """Press a button, read what will happen, and agree."""
    console.hand.press(button)
    dialog = console.page.get_by_role("dialog", name=title)
    expect(dialog).to_be_visible()
    console.check_access()
    console.hand.press(dialog.get_by_role("button", name=action))
    expect(dialog).to_have_count(0)
