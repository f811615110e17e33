// The dialog that takes a lock from its holder guards until the end.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { launch, open, visit } from "./browser.js";
import { holder, serve, until } from "./service.js";

const UPDATES = 20;
let service, browser;

before(async () => {
  [service, browser] = await Promise.all([serve({ store: "memory:" }), launch()]);
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

const state = (name) => service.api("GET", `/v1/locks/${encodeURIComponent(name)}`);

async function openDialog(page, name) {
  await visit(page, service.base, "/locks");
  await page.getByRole("button", { name: `Force release ${name}` }).click();
  const dialog = page.getByRole("dialog");
  await dialog.getByText("The holder may still be running.").waitFor();
  return { dialog, submit: dialog.getByRole("button", { name: "Force release" }) };
}

test("the name and a reason are required, and 20 live updates change nothing in the dialog", async () => {
  const held = await holder(service, "stuck", ["force:1", "force:2"]);
  const { page, problems, close } = await open(browser, service.base);
  const { dialog, submit } = await openDialog(page, "force:1");
  await dialog.getByLabel(/Type force:1/).fill("force:");
  await dialog.getByLabel(/Reason/).fill("the host is gone");
  assert.ok(await submit.isDisabled());

  for (let update = 1; update <= UPDATES; update += 1) {
    const other = await holder(service, `update ${update}.`, ["update:1"]);
    await page.locator("tbody tr", { hasText: `update ${update}.` }).waitFor({ state: "attached" });
    await other.release();
  }
  assert.ok(await submit.isDisabled());
  assert.equal(await dialog.getByLabel(/Reason/).inputValue(), "the host is gone");
  await dialog.getByLabel(/Type force:1/).press("Enter");
  assert.equal((await state("force:1")).state, "held");

  await dialog.getByLabel(/Type force:1/).fill("force:1");
  await submit.click();
  await dialog.getByText("The lock is free.").waitFor();
  assert.equal((await state("force:1")).state, "free");
  assert.equal((await state("force:2")).state, "held");
  await dialog.getByRole("button", { name: "Close" }).click();
  await visit(page, service.base, "/audit");
  await page.getByRole("row", { name: /force release.*force:1.*the host is gone/ }).first().waitFor();
  assert.deepEqual(problems, []);
  await held.release();
  await close();
});

test("a lock that has changed hands meanwhile is not released, and the dialog says who holds it", async () => {
  const first = await holder(service, "first holder", ["changed:1"]);
  const { page, close } = await open(browser, service.base);
  const { dialog, submit } = await openDialog(page, "changed:1");
  await dialog.getByLabel(/Type changed:1/).fill("changed:1");
  await dialog.getByLabel(/Reason/).fill("it looked stuck");
  await first.release();
  const second = await holder(service, "second holder", ["changed:1"]);
  await submit.click();
  await dialog.getByText("The holder has changed; nothing was released.").waitFor();
  await dialog.getByText(`fence ${second.held[0].fence}`).waitFor();
  assert.ok(await submit.isDisabled());
  assert.equal((await state("changed:1")).holder.label, "second holder");

  await dialog.getByRole("button", { name: "Show the present holder" }).click();
  await dialog.getByText("second holder").waitFor();
  assert.equal(await dialog.getByLabel(/Type changed:1/).inputValue(), "");
  await page.keyboard.press("Escape");
  await dialog.waitFor({ state: "detached" });
  assert.equal((await state("changed:1")).state, "held");
  await second.release();
  await close();
});

test("a service that only reads offers no release, and refuses one", async () => {
  const readOnly = await serve({ store: "memory:", args: ["--read-only"] });
  const { page, close } = await open(browser, readOnly.base);
  await visit(page, readOnly.base, "/locks");
  await page.getByText("read-only").waitFor();
  assert.equal(await page.getByRole("button", { name: /Force release/ }).count(), 0);
  const refused = await page.evaluate(async () => {
    const headers = { "Content-Type": "application/json", "If-Match": '"1"' };
    const response = await fetch("/v1/locks/any/force-release", { method: "POST", headers, body: '{"reason":"try"}' });
    return [response.status, (await response.json()).kind];
  });
  assert.deepEqual(refused, [403, "read_only"]);
  await visit(page, readOnly.base, "/playground");
  await page.getByRole("button", { name: "Add a worker" }).click();
  await page.getByText("worker 1").first().waitFor();
  await close();
  await readOnly.stop();
});

test("a row of a lock on a service that only reads has no button", async (t) => {
  const store = `sqlite:${process.env.TMPDIR ?? "/tmp"}/leasehold-browser-${process.pid}.db`;
  const [writes, reads] = [await serve({ store }), await serve({ store, args: ["--read-only"] })];
  t.after(() => Promise.all([writes.stop(), reads.stop()]));
  const held = await holder(writes, "other service", ["shared:1"]);
  const { page, close } = await open(browser, reads.base);
  await visit(page, reads.base, "/locks");
  const row = page.getByRole("row", { name: /shared:1/ });
  await row.getByText("other service").waitFor();
  assert.equal(await row.getByRole("button").count(), 0);
  await held.release();
  await until(async () => (await row.count()) === 0, "the row to go");
  await close();
});
