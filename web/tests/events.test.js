// Events that stop, and what the page says and does then.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, visit } from "./browser.js";
import { holder, proxy, serve, until } from "./service.js";

let service, browser, link;

before(async () => {
  [service, browser] = await Promise.all([serve({ store: "memory:" }), launch()]);
  link = await proxy(service.port);
});

after(async () => {
  await browser?.close();
  link?.stop();
  await service?.stop();
});

/** The values of a header of the requests for events. */
function eventRequests(page) {
  const ids = [];
  page.on("request", (request) => request.url().includes("/v1/events") && ids.push(request.headers()["last-event-id"] ?? null));
  return ids;
}

test("a dropped stream is said, and goes on after the last message", async () => {
  const { page, close } = await open(browser, link.base);
  const ids = eventRequests(page);
  await visit(page, link.base, "/locks");
  link.cut();
  await page.getByRole("alert").getByText(/No updates since/).waitFor();
  const held = await holder(service, "meanwhile", ["dropped:1"]);
  link.mend();
  await page.getByRole("row", { name: /dropped:1/ }).getByText("meanwhile").waitFor();
  await page.getByText(/No updates since/).waitFor({ state: "detached" });
  assert.equal(ids[0], null);
  assert.ok(ids.slice(1).every((id) => id !== null), `ids: ${ids}`);
  await held.release();
  await close();
});

test("a paused page stands still, and resumes where it stopped", async () => {
  const { page, close } = await open(browser, service.base);
  const ids = eventRequests(page);
  await visit(page, service.base, "/locks");
  await page.getByRole("button", { name: "Pause live updates" }).click();
  await page.getByText(/Paused at/).waitFor();
  const held = await holder(service, "paused", ["paused:1"]);
  const seen = async () => (await service.api("GET", "/v1/locks?prefix=paused")).total === 1;
  await until(seen, "the service to see the lock");
  assert.equal(await page.getByRole("row", { name: /paused:1/ }).count(), 0);
  await page.getByRole("button", { name: "Resume live updates" }).click();
  await page.getByRole("row", { name: /paused:1/ }).waitFor();
  assert.notEqual(ids.at(-1), null);
  await held.release();
  await close();
});
