"""Takes pictures of the live page (`/`) for the documentation: light, dark and narrow.

usage: live_page_pictures.py URL FOLDER [SECONDS]   waits SECONDS for the charts, 90 by default; needs pngquant
"""

import subprocess
import sys
import time
from pathlib import Path

from webdriver import Browser

URL, FOLDER, SECONDS = sys.argv[1], Path(sys.argv[2]), float((sys.argv + ["90"])[3])

browsers = {"light": Browser(1280, 900), "dark": Browser(1280, 900, dark=True), "narrow": Browser(390, 900)}
try:
    for browser in browsers.values():
        browser.open(URL)
    time.sleep(SECONDS)
    for name, browser in browsers.items():
        file = FOLDER / f"page-{name}.png"
        browser.screenshot(file)
        subprocess.run(["pngquant", "--force", "--ext", ".png", "64", file], check=True)
finally:
    for browser in browsers.values():
        browser.close()
