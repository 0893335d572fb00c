"""A headless Chromium that can reach this machine only."""

import os
import re
import shutil

import pytest

FLAGS = [
    "--no-sandbox",  # containers often run as root
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]
_LOCAL = re.compile(r"(https?|wss?)://127\.0\.0\.1[:/]|(file|data|blob|about):")


@pytest.fixture(scope="session")
def chromium():
    """The browser; where there is none, a failure in CI and a skip elsewhere."""
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if found is None:
        reason = "no Chromium on the PATH (Debian's package is called chromium)"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def outside() -> list[str]:
    """Addresses on other hosts that the page asked for; each request was refused."""
    return []


@pytest.fixture
def page(chromium, outside):
    """A fresh page from which no request leaves this machine."""

    def gate(route):
        address = route.request.url
        if _LOCAL.match(address):
            route.continue_()
        else:
            outside.append(address)
            route.abort()

    context = chromium.new_context(viewport={"width": 1300, "height": 1000}, color_scheme="light")
    context.route("**/*", gate)
    yield context.new_page()
    context.close()
