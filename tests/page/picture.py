"""Takes the README's picture: `python tests/page/picture.py RUN` writes chaos/page/report.png of the top of RUN's page.

Needs Chromium and its driver, as the tests do, and Pillow to make the picture small enough for a repository.
"""

from __future__ import annotations

import base64
import io
import sys
import tempfile
from pathlib import Path

from chromium import started
from PIL import Image

from chaos.page.command import report

TARGET = Path(__file__).parents[2] / "chaos" / "page" / "report.png"
WIDTH, COLOURS = 1120, 96


def main(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch, started() as browser:
        browser.open(report([folder], Path(scratch) / "report.html", None, None).output, WIDTH)
        browser.run("for (const each of document.querySelectorAll('details')) each.open = false")
        end = browser.run("return document.querySelector('#r0-ledger').getBoundingClientRect().bottom + scrollY")
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": end, "scale": 1}
        shot = browser.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
    picture = Image.open(io.BytesIO(base64.b64decode(shot["data"]))).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(TARGET, optimize=True)
    print(f"{TARGET}: {TARGET.stat().st_size:,} bytes")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
