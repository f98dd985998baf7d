"""Draws the terminal view `top` for the docs: starts simulated exporters, runs `top` in tmux, and writes the content of the pane as
text and as a picture.

usage: top_pictures.py BINARY LIBRARY FOLDER [SECONDS] [--light]   LIBRARY is the stand-in for NVML that `cargo build -p nvml-standin` builds;
writes FOLDER/top.txt, top.png and top-detail.png after 90 seconds by default; needs tmux, chromedriver and pngquant
"""

import html
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from exporter import Exporter, simulated_gpus
from webdriver import Browser

BINARY, LIBRARY, FOLDER = map(Path, sys.argv[1:4])
SECONDS = float(next((word for word in sys.argv[4:] if word != "--light"), 90))
COLUMNS, LINES = 132, 42

ENGINES = [
    """
- {source: "sim:?rate=7&prompt_mean=512&output_mean=160&prefix_share=0.6", model: llama-3.1-70b}
- {source: "sim:?rate=40&kv_blocks=400&policy=max_utilization", model: qwen-2.5-32b, version: "2"}
""",
    """
- {source: "sim:?rate=9&prompt_mean=256&output_mean=96", model: mixtral-8x22b}
- {source: "trtllm-serve:http://127.0.0.1:1", model: gpt-oss-120b}
""",
]
GPUS = "gpus=4\n" + "".join(
    f"gpu.{at}.name=NVIDIA H100 80GB HBM3\ngpu.{at}.utilization_percent={use}\ngpu.{at}.memory_total_bytes=85520809984\n"
    f"gpu.{at}.memory_used_bytes={gib << 30}\ngpu.{at}.power_mw={watts}000\ngpu.{at}.power_limit_mw=700000\n"
    f"gpu.{at}.temperature_celsius={celsius}\ngpu.{at}.throttle_reasons={reasons}\n"
    for at, (use, gib, watts, celsius, reasons) in enumerate([(93, 71, 655, 64, 0), (97, 72, 699, 81, 4), (91, 71, 640, 66, 0), (0, 1, 74, 31, 1)])
)
LIGHT = "--light" in sys.argv
PALETTE = {"foreground": "#24292f", "background": "#ffffff"} if LIGHT else {"foreground": "#d4d4d4", "background": "#16181d"}


def color(index):
    """The colour cube and the greys of xterm's 256 colours."""
    if index >= 232:
        return "#" + f"{8 + 10 * (index - 232):02x}" * 3
    level = lambda step: 55 + 40 * step if step else 0
    cube = index - 16
    return "#%02x%02x%02x" % (level(cube // 36), level(cube // 6 % 6), level(cube % 6))


def page(text):
    """The pane as HTML. Each character has its own cell, because not all glyphs of a font have the same width."""
    rows = []
    foreground, bold, underlined, reversed_ = None, False, False, False
    for line in text.split("\n"):
        cells = []
        for codes, character in re.findall(r"\x1b\[([\d;]*)m|([^\x1b])", line):
            if character:
                ink, paper = foreground or PALETTE["foreground"], "transparent"
                if reversed_:
                    ink, paper = PALETTE["background"], foreground or PALETTE["foreground"]
                style = f"color:{ink};background:{paper}" + (";font-weight:bold" if bold else "")
                style += ";text-decoration:underline" if underlined else ""
                cells.append(f'<i style="{style}">{html.escape(character)}</i>')
                continue
            numbers = [int(code) for code in codes.split(";") if code] or [0]
            while numbers:
                code = numbers.pop(0)
                if code == 0:
                    foreground, bold, underlined, reversed_ = None, False, False, False
                elif code == 38 and numbers[:1] == [5]:
                    foreground, numbers = color(numbers[1]), numbers[2:]
                elif code in (1, 22):
                    bold = code == 1
                elif code in (4, 24):
                    underlined = code == 4
                elif code in (7, 27):
                    reversed_ = code == 7
                elif code == 39:
                    foreground = None
                elif code != 49:
                    raise ValueError(f"unknown code {code} in {line!r}")
        rows.append(f"<div>{''.join(cells)}</div>")
    return f"""<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; padding: 14px; background: {PALETTE["background"]}; font: 15px "DejaVu Sans Mono", monospace; width: max-content }}
div {{ height: 18px; line-height: 18px; white-space: pre }}
i {{ display: inline-block; width: 9px; height: 18px; overflow: hidden; font-style: normal; vertical-align: top; text-align: center }}
</style>{''.join(rows)}"""


def draw(text, file):
    with tempfile.NamedTemporaryFile("w", suffix=".html") as source:
        source.write(page(text))
        source.flush()
        browser = Browser(COLUMNS * 9 + 28, LINES * 18 + 28)
        try:
            browser.open(f"file://{source.name}")
            browser.screenshot(file)
        finally:
            browser.close()
    subprocess.run(["pngquant", "--force", "--ext", ".png", "64", file], check=True)


def main():
    work = Path(tempfile.mkdtemp())
    tmux = ["tmux", "-u", "-S", work / "socket", "-f", "/dev/null"]
    run = lambda *arguments: subprocess.run([*tmux, *arguments], check=True, capture_output=True, text=True).stdout
    exporters, urls = [], []
    try:
        library = simulated_gpus(LIBRARY, work, f"log={work}/log\n{GPUS}")
        for at, engines in enumerate(ENGINES):
            config = work / f"engines-{at}.yaml"
            config.write_text(f"engines:{engines}")
            address = f"127.0.0.{at + 2}:8002"
            gpu = f"--gpu.library={library}" if at == 0 else "--gpu=off"
            exporters.append(Exporter(BINARY, f"--config.file={config}", f"--web.listen-address={address}", gpu))
            urls.append(f"http://{address}")
        urls.append("http://127.0.0.4:8002")  # Nothing listens at this address.
        environment = {**os.environ, "LC_ALL": "C.UTF-8"}
        environment.pop("NO_COLOR", None)
        shell = f"env TERM=screen-256color {BINARY.with_name('trtllm-doctor')} top {' '.join(urls)}"
        size = ["-x", str(COLUMNS), "-y", str(LINES)]
        subprocess.run([*tmux, "new-session", "-d", *size, shell], check=True, env=environment)
        time.sleep(SECONDS)
        run("send-keys", "G")
        time.sleep(1)
        (FOLDER / "top.txt").write_text("".join(line.rstrip() + "\n" for line in run("capture-pane", "-p").splitlines()))
        draw(run("capture-pane", "-p", "-e", "-N"), FOLDER / "top.png")
        run("send-keys", "Enter")
        time.sleep(4)
        draw(run("capture-pane", "-p", "-e", "-N"), FOLDER / "top-detail.png")
    finally:
        subprocess.run([*tmux, "kill-server"], check=False, capture_output=True)
        for exporter in exporters:
            exporter.stop()
        shutil.rmtree(work)


main()
