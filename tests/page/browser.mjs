/**
 * A real browser for the page's tests: the Chromium or Chrome of this machine, driven by playwright-core, which brings none of its
 * own. Where there is none, the tests that need one are skipped and say so; SPILLWAY_BROWSER names one that is elsewhere.
 *
 * A page that is opened here tells afterwards what went wrong in it: `clean` fails if anything was written to the console as an
 * error, thrown, or refused by the Content-Security-Policy.
 */
import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { connect, createServer } from "node:net";
import { delimiter, join } from "node:path";
import { after, describe, test } from "node:test";
import { chromium } from "playwright-core";
import { eventually, KEYS, PATIENCE } from "../e2e/harness.mjs";

const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");

const NAMES = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

function executable() {
  if (process.env.SPILLWAY_BROWSER) return process.env.SPILLWAY_BROWSER;
  const directories = (process.env.PATH ?? "").split(delimiter);
  const places = NAMES.flatMap((name) => directories.map((directory) => join(directory, name)));
  return [...places, "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"].find(existsSync);
}

const executablePath = executable();

const NONE =
  "skipped: no Chromium or Chrome on this machine; install one (apt-get install chromium), or name it in SPILLWAY_BROWSER";

/**
 * Tests that need a browser, which is ended after them.
 *
 * @param {string} name
 * @param {(browser: import("playwright-core").Browser) => Promise<void>} suite
 */
export function describeInBrowser(name, suite) {
  if (!executablePath) {
    // A diagnostic is shown of a good run, too.
    test(name, (t) => (t.diagnostic(NONE), t.skip(NONE)));
    return;
  }
  describe(name, async () => {
    // Root has no sandbox to be had, and nothing is loaded here but our own page.
    const args = process.getuid?.() === 0 ? ["--no-sandbox"] : [];
    const browser = await chromium.launch({ executablePath, args });
    after(() => browser.close());
    await suite(browser);
  });
}

export const PHONE = { viewport: { width: 360, height: 740 }, hasTouch: true, isMobile: true, deviceScaleFactor: 2 };

/**
 * The page of a running Spillway, in a context of its own.
 *
 * @param {import("playwright-core").Browser} browser
 * @param {string} url
 * @param {import("playwright-core").BrowserContextOptions & { hash?: string, clock?: boolean }} [options] `clock`: the page's timers
 *   can be put ahead (`later`); until then they go as they would.
 */
export async function open(browser, url, { hash = "", clock = false, ...options } = {}) {
  const context = await browser.newContext({ locale: "en-GB", timezoneId: "UTC", ...options });
  const page = await context.newPage();
  if (clock) await page.clock.install();
  page.setDefaultTimeout(PATIENCE);
  const wrong = [];
  page.on("console", (message) => message.type() === "error" && wrong.push(message.text()));
  page.on("pageerror", (error) => wrong.push(`${error}`));
  await page.exposeFunction("wrongWas", (what) => wrong.push(what));
  await page.addInitScript(() =>
    document.addEventListener("securitypolicyviolation", ({ violatedDirective, blockedURI }) =>
      globalThis.wrongWas(`CSP: ${violatedDirective} ${blockedURI}`),
    ),
  );
  await page.goto(`${url}/${hash}`);
  return {
    page,
    context,
    /** Ends it. `expected`: errors that the browser itself writes down, of answers that the test has asked for. */
    async clean(expected = []) {
      await context.close();
      assert.deepEqual(
        wrong.filter((text) => !expected.some((known) => known.test(text))),
        [],
      );
    },
  };
}

/** Waits until the focus is there: the page puts it where it belongs when an answer has come, or the address has changed. */
export async function untilFocused(locator) {
  await locator.waitFor();
  await eventually(() => locator.evaluate((element) => element === document.activeElement), { what: `${locator}` });
}

/** A line to a Spillway that can be cut: a browser that is told to be offline keeps the connections that it has. */
export async function line(url) {
  const sockets = new Set();
  let isCut = false;
  const server = createServer((near) => {
    const far = connect(Number(new URL(url).port), "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket);
      socket.on("error", () => {}).on("close", () => (sockets.delete(socket), near.destroy(), far.destroy()));
    }
    if (isCut) near.destroy();
    else near.pipe(far).pipe(near);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const cut = () => {
    isCut = true;
    for (const socket of sockets) socket.destroy();
  };
  return {
    url: `http://127.0.0.1:${server.address().port}`,
    cut,
    mend: () => (isCut = false),
    close: () => (cut(), server.close()),
  };
}

/**
 * Puts the clock of a page that was opened with `clock` ahead, with every timer that is due until then, and answers what the page has
 * asked of the API meanwhile, by its paths. What it asks last is ours, so that nothing it has asked before is overlooked.
 */
export async function later(page, ms) {
  const asked = [];
  const listen = (request) => asked.push(new URL(request.url()).pathname);
  page.on("request", listen);
  await page.clock.runFor(ms);
  const last = page.waitForRequest("**/healthz");
  await page.evaluate(() => fetch("/healthz").then((response) => response.text()));
  await last;
  page.off("request", listen);
  assert.equal(asked.at(-1), "/healthz", `${asked}`);
  return asked.slice(0, -1).filter((path) => path.startsWith("/v1/"));
}

/** Gives a client's key, and waits until it is taken. */
export async function giveKey(page, key = KEYS.app) {
  await page.getByLabel("Client key").fill(key);
  await page.getByRole("button", { name: "Use key" }).click();
  await page.getByRole("button", { name: "Forget it" }).waitFor();
}

/** Writes a job and submits it; `fields` by their labels. */
export async function submit(page, prompt, fields = {}) {
  await page.getByLabel("Prompt").fill(prompt);
  const more = page.getByText("More settings");
  if (!(await page.getByLabel("Model", { exact: true }).isVisible())) await more.click();
  for (const [label, value] of Object.entries(fields)) {
    const field = page.getByLabel(label, { exact: true });
    if ((await field.evaluate(({ tagName }) => tagName)) === "SELECT") await field.selectOption(value);
    else await field.fill(value);
  }
  await page.getByRole("button", { name: "Submit" }).click();
}

/** What axe-core finds against the page as it is now, in light and in dark: each rule with the elements that break it. */
export async function violations(page) {
  // From outside, where the page's policy does not hold: it would not let it in.
  await page.evaluate(axe);
  const found = [];
  for (const colorScheme of ["light", "dark"]) {
    await page.emulateMedia({ colorScheme });
    const { violations } = await page.evaluate(() => globalThis.axe.run({ resultTypes: ["violations"] }));
    const places = (nodes) => nodes.map(({ target, failureSummary }) => `${target} ${failureSummary}`).join(" | ");
    found.push(...violations.map(({ id, nodes }) => `${colorScheme} ${id}: ${places(nodes)}`));
  }
  return found;
}

export async function assertAccessible(page) {
  assert.deepEqual(await violations(page), []);
}

/** What a user has been shown of a job since this was called: each picture of it that differs from the one before. */
export async function recorded(page) {
  await page.evaluate(() => {
    const text = (selector) => {
      const element = document.querySelector(`.placeholder ${selector}`);
      return element && !element.hidden ? element.textContent : "";
    };
    const seen = (globalThis.seen = []);
    const look = () => {
      const now = {
        step: document.querySelector(".steps [aria-current]")?.firstChild.textContent ?? "",
        mood: document.querySelector(".steps")?.dataset.mood,
        status: document.querySelector(".head .pill")?.dataset.status,
        message: text(".message"),
        why: text(".why"),
        when: text(".when"),
        note: text(".note:not([hidden])"),
        live: text("[role=status]"),
        text: document.querySelector(".answer[hidden]") ? "" : text(".text"),
      };
      if (JSON.stringify(now) !== JSON.stringify(seen.at(-1))) seen.push(now);
    };
    new MutationObserver(look).observe(document.querySelector("main"), {
      subtree: true,
      childList: true,
      characterData: true,
      attributes: true,
    });
  });
  return async (name) => {
    const seen = await page.evaluate(() => globalThis.seen);
    return seen.map((now) => now[name]).filter((value, n, all) => value && value !== all[n - 1]);
  };
}

/** The job that the page shows, by its address. */
export const jobId = (page) => new URL(page.url()).hash.replace("#try/", "");

/** Resolves when the job that the page shows has this status. */
export const untilShown = (page, status) => page.locator(`.head .pill[data-status="${status}"]`).waitFor();
