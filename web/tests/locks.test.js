// The list of locks: live rows, filters in the address, pages.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, visit } from "./browser.js";
import { holder, serve, until, waiter } from "./service.js";

const ROWS = 100;
let service, browser;

before(async () => {
  [service, browser] = await Promise.all([serve({ store: "memory:" }), launch()]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

test("rows come, change and go without loading the page", async () => {
  const { page, close } = await open(browser, service.base);
  await visit(page, service.base, "/locks?prefix=live");
  await page.getByText("No lock matches").waitFor();
  const first = await holder(service, "first", ["live:1"]);
  const row = page.getByRole("row", { name: /live:1/ });
  await row.getByText("first").waitFor();
  const queued = waiter(service, "live:1", "second");
  await row.locator("b.queue", { hasText: "1" }).waitFor();
  await first.release();
  await row.getByText("second").waitFor();
  const { token } = await queued.granted;
  await service.api("POST", "/v1/locks/live:1/release", { token });
  await row.waitFor({ state: "detached" });
  await close();
});

test("a row that changes keeps its element, so that a focus inside of it stays", async () => {
  const { page, close } = await open(browser, service.base);
  const held = await holder(service, "keyed", ["keyed:1", "keyed:2"]);
  await visit(page, service.base, "/locks?prefix=keyed");
  const link = page.getByRole("link", { name: "keyed:2", exact: true });
  await link.focus();
  const queued = waiter(service, "keyed:1", "waits");
  await page.getByRole("row", { name: /keyed:1/ }).locator("b.queue").waitFor();
  assert.ok(await link.evaluate((element) => element === document.activeElement));
  queued.leave();
  await held.release();
  await close();
});

test("filters are in the address, and come back from it", async () => {
  const held = await holder(service, "filters", ["filter:a", "filter:b"]);
  const queued = waiter(service, "filter:b", "waits");
  const { page, close } = await open(browser, service.base);
  await visit(page, service.base, "/locks");
  await page.getByLabel("Name begins with").fill("filter:");
  await page.waitForURL(/prefix=filter%3A/);
  await page.getByRole("row", { name: /filter:a/ }).waitFor();
  await page.getByLabel("Waiters").selectOption("at least one");
  await page.waitForURL(/waiting=true/);
  await page.getByRole("row", { name: /filter:a/ }).waitFor({ state: "detached" });
  await page.getByRole("row", { name: /filter:b/ }).waitFor();

  const address = page.url();
  await page.goto(address);
  await page.getByRole("row", { name: /filter:b/ }).waitFor();
  assert.equal(await page.getByLabel("Name begins with").inputValue(), "filter:");
  assert.equal(await page.getByRole("row", { name: /filter:a/ }).count(), 0);
  await page.goBack();
  await page.getByRole("row", { name: /filter:a/ }).waitFor();
  queued.leave();
  await held.release();
  await close();
});

test("5,000 locks are shown page by page", async () => {
  const locks = 5000;
  const names = Array.from({ length: locks }, (_, lock) => `many:${String(lock).padStart(5, "0")}`);
  const groups = Array.from({ length: 10 }, (_, group) => names.filter((_, lock) => lock % 10 === group));
  const held = await Promise.all(groups.map((group, index) => holder(service, `many ${index}`, group)));
  const { page, problems, close } = await open(browser, service.base);
  await visit(page, service.base, "/locks?prefix=many");
  await page.getByText("5,000 locks match").waitFor();
  const rows = page.locator("tbody tr");
  assert.equal(await rows.count(), ROWS);
  await page.getByRole("button", { name: "Next" }).click();
  await page.getByRole("row", { name: /many:00100/ }).waitFor();
  assert.equal(await rows.count(), ROWS);

  // Renewals change every row: the page goes on to draw frames meanwhile.
  await page.evaluate(() => {
    globalThis.drawn = 0;
    const frame = () => {
      globalThis.drawn += 1;
      requestAnimationFrame(frame);
    };
    requestAnimationFrame(frame);
  });
  for (let round = 0; round < 3; round += 1) {
    for (const { renew } of held) await renew();
  }
  await until(() => page.evaluate(() => globalThis.drawn > 20), "frames to be drawn");
  assert.equal(await rows.count(), ROWS);
  await page.getByRole("button", { name: "Previous" }).click();
  await page.getByRole("row", { name: /many:00000/ }).waitFor();
  assert.deepEqual(problems, []);
  await close();
  for (const { release } of held) await release();
});

test("the queue of a lock is shown in order", async () => {
  const held = await holder(service, "holds", ["queue:1"]);
  const queued = [];
  for (const [index, label] of ["one", "two", "three"].entries()) {
    queued.push(waiter(service, "queue:1", label));
    await until(async () => (await service.api("GET", "/v1/locks/queue:1")).waiters.length === index + 1, `${label} to wait`);
  }
  const { page, close } = await open(browser, service.base);
  await visit(page, service.base, "/lock?name=queue%3A1");
  const labels = page.locator(".queue-list .holder-label");
  await until(async () => (await labels.count()) === queued.length, "the queue to be shown");
  assert.deepEqual(await labels.allInnerTexts(), ["one", "two", "three"]);
  for (const { leave } of queued) leave();
  await held.release();
  await close();
});
