// Every page: from its address alone, under the real policy, in both colours, without a serious finding of axe.
import assert from "node:assert/strict";
import { readFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { after, before, test } from "node:test";
import { PAGES, launch, open, visit } from "./browser.js";
import { fill } from "./fixture.js";
import { serve } from "./service.js";

let service, browser, things, axe;

before(async () => {
  [service, browser] = await Promise.all([serve(), launch()]);
  things = await fill(service);
  axe = await readFile(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
});

after(async () => {
  await browser?.close();
  await things?.release();
  await service?.stop();
});

for (const [name, path] of Object.entries(PAGES)) {
  for (const colorScheme of ["light", "dark"]) {
    test(`${name} loads in ${colorScheme} without an error and is accessible`, async () => {
      const { page, problems, close } = await open(browser, service.base, { colorScheme });
      await visit(page, service.base, path);
      assert.equal(await page.locator("main .notice.bad").count(), 0, await page.locator("main").innerText());
      // The browser's own channel: the policy of the page would refuse a script that is added to it.
      await page.evaluate(axe);
      const { violations } = await page.evaluate(() => globalThis.axe.run());
      const serious = violations.filter(({ impact }) => impact === "serious" || impact === "critical");
      assert.deepEqual(serious.map(({ id, nodes }) => [id, nodes.map(({ html }) => html)]), []);
      assert.deepEqual(problems, []);
      await close();
    });
  }
}

test("an address that is no page says so", async () => {
  const { page, close } = await open(browser, service.base);
  await page.goto(`${service.base}/no/such/page`);
  await page.getByRole("heading", { name: "There is no such page" }).waitFor();
  await close();
});

test("the policy forbids everything inline", async () => {
  const policy = (await fetch(service.base)).headers.get("content-security-policy");
  assert.match(policy, /default-src 'none'/);
  assert.doesNotMatch(policy, /unsafe/);
});

test("all files together weigh less than 60 kB compressed", async () => {
  const html = await (await fetch(service.base)).text();
  const files = ["/", ...[...html.matchAll(/(?:src|href)="(\/assets\/[^"]+)"/g)].map(([, file]) => file)];
  assert.ok(files.length >= 3, html);
  const { gzipSync } = await import("node:zlib");
  let bytes = 0;
  for (const file of files) bytes += gzipSync(Buffer.from(await (await fetch(service.base + file)).arrayBuffer())).length;
  assert.ok(bytes < 60_000, `${bytes} bytes`);
});
