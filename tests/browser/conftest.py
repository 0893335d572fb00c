import pytest
from playwright.sync_api import sync_playwright
@pytest.fixture
def page():
    with sync_playwright() as p:
        b=p.chromium.launch(executable_path="/usr/bin/chromium",args=["--no-sandbox","--disable-gpu","--disable-background-networking","--no-first-run","--disable-component-update","--disable-sync"])
        pg=b.new_page(viewport={"width":1300,"height":1000})
        yield pg
        pg.screenshot(path="/tmp/lab.png",full_page=False)
        b.close()
