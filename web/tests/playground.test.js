// The page that explains the product: a paused holder's late write bounces.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, visit } from "./browser.js";
import { serve } from "./service.js";

let service, browser;

before(async () => {
  [service, browser] = await Promise.all([serve({ store: "memory:" }), launch()]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

test("the late write of a paused holder is refused, and all four steps are done", async () => {
  const { page, problems, close } = await open(browser, service.base);
  await visit(page, service.base, "/playground");
  const add = page.getByRole("button", { name: "Add a worker" });
  await add.click();
  await page.locator(".worker.holding").waitFor();
  await add.click();
  await page.locator(".worker.waiting").waitFor();
  await page.locator(".worker.holding").getByRole("button", { name: /Pause 8 s/ }).click();
  await page.locator(".worker.stale").getByText("Believes that it holds the lock. Its lease is over.").waitFor();
  await page.locator(".log .rejected").first().waitFor();
  await page.locator(".steps li.done").nth(3).waitFor();
  assert.deepEqual(problems, []);
  await close();
});

test("a crashed holder's lock goes to the next worker by itself", async () => {
  const { page, close } = await open(browser, service.base);
  await visit(page, service.base, "/playground");
  await page.getByRole("button", { name: "Start over" }).click();
  const add = page.getByRole("button", { name: "Add a worker" });
  await add.click();
  const label = await page.locator(".worker.holding .worker-head b").innerText();
  await add.click();
  await page.locator(".worker.waiting").waitFor();
  await page.locator(".worker.holding").getByRole("button", { name: /Crash/ }).click();
  await page.locator(".worker.crashed .worker-head b", { hasText: label }).waitFor();
  await page.locator(".worker.holding").waitFor();
  assert.notEqual(await page.locator(".worker.holding .worker-head b").innerText(), label);
  await close();
});
