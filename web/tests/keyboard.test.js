// Everything with the keyboard alone.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, visit } from "./browser.js";
import { holder, serve } from "./service.js";

const PRESSES_MAX = 80;
let service, browser;

before(async () => {
  [service, browser] = await Promise.all([serve({ store: "memory:" }), launch()]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

/** Presses Tab until the focus is on what matches; every stop on the way shows where the focus is. */
async function tabTo(page, selector) {
  for (let press = 0; press < PRESSES_MAX; press += 1) {
    await page.keyboard.press("Tab");
    const { found, outline, what } = await page.evaluate((wanted) => {
      const at = document.activeElement;
      // The end of the page: the next press begins again.
      if (at === document.body) return { found: false, outline: "", what: "" };
      return { found: at.matches(wanted), outline: getComputedStyle(at).outlineStyle, what: at.outerHTML.slice(0, 80) };
    }, selector);
    assert.notEqual(outline, "none", `the focus is not visible on ${what}`);
    if (found) return;
  }
  assert.fail(`${selector} was not reached by ${PRESSES_MAX} presses of Tab`);
}

test("a lock is found, looked at and released by force", async () => {
  const held = await holder(service, "keys", ["keyboard:1"]);
  const { page, close } = await open(browser, service.base);
  await visit(page, service.base, "/");
  await page.keyboard.press("/");
  await page.keyboard.type("keyb");
  await page.getByRole("option", { name: "keyboard:1" }).waitFor();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await page.waitForURL(/\/lock\?name=keyboard%3A1/);
  await page.getByRole("heading", { name: "keyboard:1" }).waitFor();

  await page.locator("main button.danger").waitFor();
  await tabTo(page, "main button.danger");
  await page.keyboard.press("Enter");
  await page.getByRole("dialog").waitFor();
  await tabTo(page, "dialog input[name=confirm]");
  await page.keyboard.type("keyboard:1");
  await page.keyboard.press("Tab");
  await page.keyboard.type("by keyboard");
  await page.keyboard.press("Enter");
  await page.getByText("The lock is free.").waitFor();
  await page.keyboard.press("Escape");
  await page.getByRole("dialog").waitFor({ state: "detached" });
  await held.release();
  await close();
});

test("the menu and the switches are reached by Tab", async () => {
  const { page, close } = await open(browser, service.base);
  await visit(page, service.base, "/");
  await tabTo(page, ".skip");
  await tabTo(page, ".menu a[href='/playground']");
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Playground" }).waitFor();
  await tabTo(page, ".live button");
  await page.keyboard.press("Enter");
  await page.getByText(/Paused at/).waitFor();
  await tabTo(page, "button.theme");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "light");
  await page.keyboard.press("Enter");
  assert.equal(await page.evaluate(() => document.documentElement.dataset.theme), "dark");
  await close();
});
