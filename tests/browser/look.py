"""Opens an address in a browser, and prints the result as JSON. Runs in the browser's container.

look.py curve ADDRESS TAG                  TensorBoard's curves of a tag, in pixels
look.py page ADDRESS WIDTH [FILE HEIGHT]   a page at a width, and a picture of its upper part
"""

import json
import sys
import time

from selenium import webdriver
from selenium.webdriver.chrome.options import Options

OPTIONS = (
    "--headless=new",
    "--no-sandbox",  # the container is a sandbox
    "--disable-dev-shm-usage",
    "--disable-gpu",
    "--disable-3d-apis",  # TensorBoard then draws its curves as SVG, which this program can read
    "--hide-scrollbars",
    "--window-size=1400,1000",
)
SECONDS = 60
STILL_SECONDS = 2  # TensorBoard draws curves as they arrive, and then moves them into place
CARDS = """
    return [...document.querySelectorAll('scalar-card')]
        .filter(card => card.innerText.replace(/\\s/g, '').includes(arguments[0]))
        .flatMap(card => [...card.querySelectorAll('line-chart .series-view > svg path')])
        .filter(path => path.style.display != 'none')
        .map(path => path.getAttribute('d'))
"""
SIZES = """
    const wide = [...document.querySelectorAll('body *')]
        .filter(one => !one.closest('.scroll, .drawing, pre'))
        .filter(one => one.getBoundingClientRect().right > innerWidth + 1)
    return {
        width: innerWidth,
        content: document.documentElement.scrollWidth,
        height: document.documentElement.scrollHeight,
        wider: wide.map(one => one.outerHTML.slice(0, 100)),
        drawings: document.querySelectorAll('.drawing svg').length,
        pictures: [...document.images].filter(one => one.naturalWidth > 0).length,
        text: document.body.innerText,
    }
"""


def curve(browser, address, tag):
    """Return the curves of a tag, each a list of [x, y] in pixels, once they stop moving."""
    browser.get(address)
    until = time.monotonic() + SECONDS
    before, paths = None, []
    while not paths or paths != before:
        if time.monotonic() > until:
            return {"curves": [], "text": browser.execute_script("return document.body.innerText")}
        time.sleep(STILL_SECONDS)
        before, paths = paths, browser.execute_script(CARDS, tag)
    curves = [[point.split(",") for point in path[1:].split("L")] for path in paths]
    return {"curves": [[[float(x), float(y)] for x, y in one] for one in curves]}


def page(browser, address, width, picture=None, height="900"):
    """Return a page's size, text and number of drawings at a width; save a picture if asked."""
    screen = {"width": int(width), "height": int(height), "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
    browser.get(address)
    found = browser.execute_script(SIZES)
    if picture:
        browser.save_screenshot(picture)
    return found


def requests(browser):
    """Return the addresses that the page requested."""
    messages = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    asked = [one["params"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return sorted({one["request"]["url"][:200] for one in asked})


def main():
    what, *arguments = sys.argv[1:]
    options = Options()
    for option in OPTIONS:
        options.add_argument(option)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = webdriver.Chrome(options=options)
    try:
        found = {"curve": curve, "page": page}[what](browser, *arguments)
        found["said"] = [entry["message"] for entry in browser.get_log("browser")]
        found["requests"] = requests(browser)
    finally:
        browser.quit()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
