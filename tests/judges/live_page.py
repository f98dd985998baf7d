"""Checks the live page (`/`) in a real Chromium, also for accessibility with axe-core.

usage: live_page.py AXE ADDRESS COMMAND...   starts the exporter with the command, which must listen on the address
The exporter must have the engines that tests/it/live_page.rs configures. The last argument must be its NVML library. Prints one line per
check, and stops at the first failure.
"""

import json
import os
import sys
import time
from pathlib import Path

from exporter import Page, Program, fetch
from webdriver import Browser

AXE, ADDRESS, *COMMAND = sys.argv[1:]
URL = f"http://{ADDRESS}/"
TAB = "\ue004"

SHOW_ALL = "document.querySelectorAll('#engine-rows button[aria-expanded=false]').forEach((button) => button.click())"
CARD = """
  const card = [...document.querySelectorAll('article')].find((card) => card.querySelector('h3').textContent.includes(arguments[0]));
  if (!card) return null;
"""
NUMBERS = CARD + """
  const rows = [...card.querySelectorAll('dl > div')].filter((row) => !row.hidden);
  return Object.fromEntries(rows.map((row) => [row.children[0].textContent, row.children[1].textContent]));
"""


def start():
    exporter = Program(COMMAND, os.devnull)
    exporter.until_ready(lambda: fetch(URL + "healthz"))
    return exporter


def metric(name, **labels):
    return Page(fetch(URL + "metrics").decode()).value(name, **labels)


def ok(name):
    print(f"ok {name}", flush=True)


def number(text):
    return float(text.replace(",", "").split()[0])


def accessible(browser):
    browser.run(Path(AXE).read_text())
    found = browser.run_async("axe.run().then((results) => arguments[0](results.violations))")
    assert found == [], json.dumps(found, indent=1)[:4000]


def values_equal_the_metrics_page(browser):
    # The numbers of a finished replay do not change.
    shown = browser.until(NUMBERS, "ended")
    assert number(shown["Completed requests"]) == metric("nv_trt_llm_requests_completed_total", model="ended") > 0, shown
    assert number(shown["Lost iterations"]) == metric("nv_trt_llm_iterations_lost_total", model="ended") > 0, shown
    assert number(shown["Restarts"]) == metric("nv_trt_llm_engine_restarts_total", model="ended"), shown
    titles, *rows = browser.run("return [...document.querySelectorAll('#gpu-table tr')].map((row) => [...row.children].map((cell) => cell.textContent))")
    gpu = dict(zip(titles, rows[1]))
    labels = {"gpu_uuid": "GPU-b"}
    assert gpu["GPU"].startswith("1 ") and gpu["State"] == "throttled", "the row agrees with the finding about the GPU"
    assert number(gpu["Utilization"]) == round(metric("nv_gpu_utilization", **labels) * 100, 1), gpu
    assert abs(number(gpu["Power"]) - metric("nv_gpu_power_usage", **labels)) < 1, gpu
    assert number(gpu["Temperature"]) == metric("nv_gpu_temperature_celsius", sensor="gpu", **labels), gpu
    assert "hw thermal slowdown" in gpu["Clocks limited by"], gpu
    ok("numbers equal the metrics page")


def numbers_are_updated(browser):
    completed = CARD + "return Number([...card.querySelectorAll('dl > div')].find((row) => row.textContent.startsWith('Completed')).children[1].textContent.replaceAll(',', ''))"
    before = browser.until(completed, "live")
    browser.until(f"return arguments[1] < (() => {{ {completed} }}).apply(null, arguments)", "live", before)


def the_page_updates(browser):
    numbers_are_updated(browser)
    drawn = CARD + "return [...card.querySelectorAll('figure')].filter((figure) => !figure.hidden && figure.querySelector('polyline').getAttribute('points').split(' ').length >= 3).length"
    # The time to the first token and the time per token need a request that has ended.
    browser.until(f"return (() => {{ {drawn} }}).apply(null, arguments) >= 4", "live")
    assert browser.run("return document.querySelectorAll('.simulated:not([hidden])').length") == 1
    ok("numbers and charts are updated")


def reasons_are_shown(browser):
    why = CARD + "return card.querySelector('.state').textContent + ': ' + card.querySelector('.why').textContent"
    error = "the source has never answered: cannot connect to http://127.0.0.1:1: Connection refused"
    nowhere = browser.run(why, "nowhere")
    assert nowhere.startswith("unavailable: ") and error in nowhere and "(no answer for " in nowhere, nowhere
    # The stand-in for NVML reads its state from a file beside it. The file must be replaced, so that nobody reads half of it.
    state = Path(COMMAND[-1] + ".state")
    draft = state.with_suffix(".draft")
    draft.write_text(state.read_text() + "gpu.2.lost=1\n")
    draft.rename(state)
    browser.until("return document.querySelectorAll('#gpu-rows .badge')[2].textContent === 'lost'")
    ok("an engine or GPU in trouble says why")


def ranks_are_listed(browser):
    table = CARD + "return [...card.querySelectorAll('table:not([hidden]) tbody tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
    listed = f"const rows = (() => {{ {table} }}).apply(null, arguments); return rows?.length === 2 && rows"
    # In rows without `rank`, the active requests and the KV cache are copies from rank 0. With `rank`, one rank may send
    # the rows of all ranks.
    for model, copied in [("copied", True), ("each-its-own", False)]:
        rows = browser.until(listed, model)
        iteration = int(rows[0][3])
        assert rows[0] == ["0", "3", "1", str(iteration), "0", "25 %"] and iteration > 0, rows
        active, cache = ("–", "–") if copied else ("4", "25 %")
        assert rows[1] == ["1", active, "2", rows[1][3], "1", cache] and int(rows[1][3]) in (iteration, iteration - 1), rows
    assert browser.run(table, "live") == [], "an engine without ranks has a table"
    ok("the ranks of an engine are listed")


def sides_are_listed(browser):
    table = CARD + "return [...card.querySelectorAll('tr')].map((row) => [...row.children].map((cell) => cell.textContent))"
    # The page shows rates only after two reads of the API.
    counted = f"const rows = (() => {{ {table} }}).apply(null, arguments); return rows && rows[3][2].endsWith('%') && rows[3][2] !== '0 %' && rows"
    head, *rows = browser.until(counted, "disagg")
    assert head == ["", "context", "generation"], head
    context, generation = [{name: values[side] for name, *values in rows} for side in (0, 1)]
    assert (context["workers"], generation["workers"]) == ("2", "0 of 1"), rows
    assert context["requests"].endswith("/s") and (context["errors"], context["retries"]) == ("0 %", "0/s"), context
    # A tenth of the requests fails. The others take 0.4 s, and their first bytes arrive after 0.2 s.
    assert abs(number(generation["errors"]) - 10) < 0.1, generation
    for name, low, high in [("request p50", 300, 500), ("request p95", 300, 500), ("first byte p95", 100, 250)]:
        assert generation[name].endswith(" ms") and low < number(generation[name]) <= high, (name, generation)
    assert context["first byte p95"] == "–", context
    shown = browser.run(NUMBERS, "disagg")
    assert shown["Ready"] == "yes" and abs(number(shown["Errors"]) - 10) < 0.1 and shown["Requests"].endswith("/s"), shown
    why = browser.run(CARD + "return card.querySelector('.why').textContent", "disagg")
    assert why.endswith("workers: 2 context, 0 of 1 generation"), why
    ok("the sides of an orchestrator are listed")


def findings_are_shown(browser):
    # An earlier check, reasons_are_shown, has made the GPU lost.
    shown = """
      const card = [...document.querySelectorAll('#findings article')].find((card) => card.textContent.includes(arguments[0]));
      return card && [...card.querySelectorAll('h3, .state, p')].map((part) => part.textContent);
    """
    severity, says, subject, evidence, change = browser.until(shown, "gpu-lost")
    found = json.loads(fetch(URL + "api/v1/findings"))["findings"]
    lost = next(finding for finding in found if finding["rule"] == "gpu-lost")
    assert (says, severity) == (lost["says"], "critical"), (says, severity)
    assert subject == f"GPU {lost['subject']} · gpu-lost" and change == f"Change: {lost['remedy']}", (subject, change)
    ok("findings are those of the API")


def engines_in_trouble_are_first(browser):
    """A row says what limits the engine, and its button opens the details."""
    rows = browser.run("return [...document.querySelectorAll('#engine-rows tr')].map((row) => [...row.children].map((cell) => cell.textContent))")
    engines = {engine["model"]: engine for engine in json.loads(fetch(URL + "api/v1/engines"))}
    ranks = ["critical", "warning", "info", "none"]
    severities = [engines[row[0].split()[0]].get("verdict", {}).get("severity", "none") for row in rows if row[0].split()[0] in engines]
    assert severities == sorted(severities, key=ranks.index), rows
    nowhere = next(row for row in rows if row[0].startswith("nowhere"))
    assert nowhere[1] == "unavailable" and nowhere[2].startswith("Nothing answers for "), nowhere
    toggle = "[...document.querySelectorAll('#engine-rows button')].find((button) => button.textContent.startsWith('live')).click();"
    cards = "return [...document.querySelectorAll('#engines h3')].some((title) => title.textContent.startsWith('live'))"
    browser.run(toggle)
    assert not browser.run(cards)
    browser.run(toggle)
    assert browser.run(cards)
    change = browser.run(CARD + "return [...card.querySelectorAll('.verdict p')].map((line) => line.textContent)", "nowhere")
    assert any(line.startswith("Change: Start the server") for line in change), change
    ok("engines in trouble are first, and say what limits them")


def names_are_text(browser):
    name = '<img src=x onerror="window.attacked=1">'
    assert browser.until(CARD + "return card.querySelector('h3').textContent", name).startswith(name)
    assert browser.run("return window.attacked === undefined && document.images.length === 0")
    policy = browser.run_async("""
      const script = document.createElement('script');
      script.textContent = 'window.attacked = 1';
      document.body.append(script);
      setTimeout(() => arguments[0](window.attacked === undefined), 100)""")
    assert policy, "the policy allows a foreign script"
    browser.log()
    ok("a name is never markup, and no other script runs")


def a_keyboard_reaches_the_links(browser):
    browser.press(TAB)
    assert browser.run("return document.activeElement.textContent") == "Metrics"
    ok("a keyboard reaches the links")


def a_hidden_page_asks_nothing(browser):
    # Every tab of a headless browser counts as visible, so replace the property that the page's script reads.
    browser.run("Object.defineProperty(document, 'visibilityState', {get: () => 'hidden', configurable: true})")
    # The page may still be waiting for a request, which may take long on a busy machine.
    asked = "return performance.getEntriesByType('resource').length"
    for _ in range(6):
        before = browser.run(asked)
        time.sleep(5)
        if browser.run(asked) == before:
            break
    else:
        raise AssertionError("the page still reads the API")
    assert before > 0
    browser.run("delete document.visibilityState")
    browser.until("return document.visibilityState === 'visible'")
    numbers_are_updated(browser)
    ok("a hidden page asks for nothing")


def it_survives_a_restart(browser, exporter):
    assert browser.log() == [], browser.log()
    ok("nothing is logged in the console")
    exporter.stop()
    browser.until("return document.getElementById('connection').textContent.startsWith('No answer from the exporter since')")
    with start():
        browser.until("return document.getElementById('connection').textContent === ''")
        numbers_are_updated(browser)
        errors = [entry for entry in browser.log() if "ERR_CONNECTION_REFUSED" not in entry["message"]]
        assert errors == [], errors
    ok("the page survives a restart of the exporter")


def it_is_accessible(browser, dark):
    accessible(browser)
    for width in (320, 390, 768, 1920):
        browser.devtools("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        fits = browser.run("return document.documentElement.scrollWidth <= window.innerWidth")
        assert fits, f"{width} pixels are too narrow"
    accessible(browser)
    browser.run("document.body.append(document.createElement('button'))")
    try:
        accessible(browser)
    except AssertionError as error:
        assert "button-name" in str(error)
    else:
        raise AssertionError("axe-core misses a button without a name")
    browser.run("document.body.lastElementChild.remove()")
    ok(f"axe-core finds nothing, and the page fits every width ({'dark' if dark else 'light'})")


with start() as exporter:
    for dark in (True, False):
        with Browser(dark=dark) as browser:
            browser.open(URL)
            browser.until("return document.querySelectorAll('#engine-rows tr').length === 7 && document.querySelectorAll('#gpu-rows tr').length === 3")
            # Verdicts and charts need several intervals of five seconds.
            browser.until("return [...document.querySelectorAll('#engine-rows .state')].some((state) => state.textContent === 'unavailable')")
            browser.run(SHOW_ALL)
            if dark:
                it_is_accessible(browser, dark)
                continue
            values_equal_the_metrics_page(browser)
            engines_in_trouble_are_first(browser)
            the_page_updates(browser)
            reasons_are_shown(browser)
            ranks_are_listed(browser)
            sides_are_listed(browser)
            findings_are_shown(browser)
            a_keyboard_reaches_the_links(browser)
            a_hidden_page_asks_nothing(browser)
            it_is_accessible(browser, dark)
            names_are_text(browser)
            it_survives_a_restart(browser, exporter)
