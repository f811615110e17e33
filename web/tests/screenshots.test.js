// The pictures of the documentation, in the folder that SCREENSHOTS names.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdir, stat } from "node:fs/promises";
import path from "node:path";
import { after, before, test } from "node:test";
import { PAGES, launch, open, visit } from "./browser.js";
import { fill } from "./fixture.js";
import { serve } from "./service.js";

const folder = process.env.SCREENSHOTS;
const BYTES_MAX = 120_000;
const VIEWPORT = { width: 1280, height: 800 };

if (folder) {
  let service, browser, things;

  before(async () => {
    [service, browser] = await Promise.all([serve(), launch()]);
    things = await fill(service);
    await mkdir(folder, { recursive: true });
  });

  after(async () => {
    await browser?.close();
    await things?.release();
    await service?.stop();
  });

  for (const colorScheme of ["light", "dark"]) {
    test(`pictures of every page in ${colorScheme}`, async () => {
      const { page, close } = await open(browser, service.base, { colorScheme, viewport: VIEWPORT, reducedMotion: "reduce" });
      for (const [name, address] of Object.entries(PAGES)) {
        await visit(page, service.base, address);
        if (name === "playground") await play(page);
        if (name === "contention") await page.locator(".matrix .cell").first().click();
        const file = path.join(folder, `${name}-${colorScheme}.png`);
        await picture(page, file);
      }
      await visit(page, service.base, "/locks");
      await page.getByRole("button", { name: "Force release deal:42" }).click();
      await picture(page, path.join(folder, `force-release-${colorScheme}.png`));
      await close();
    });
  }
}

/** Until a late write has been refused. */
async function play(page) {
  await page.getByRole("button", { name: "Start over" }).click();
  const add = page.getByRole("button", { name: "Add a worker" });
  await add.click();
  await page.locator(".worker.holding").waitFor();
  await add.click();
  await add.click();
  await page.locator(".worker.waiting").nth(1).waitFor();
  await page.locator(".worker.holding").getByRole("button", { name: /Pause/ }).click();
  await page.locator(".log .rejected").first().waitFor();
  await page.locator(".workers").scrollIntoViewIfNeeded();
  await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
}

/** With 256 colours: what people see is the same, and the file a third as large. */
async function picture(page, file) {
  await page.screenshot({ path: file });
  execFileSync("pngquant", ["--force", "--strip", "--output", file, "256", "--", file]);
  const { size } = await stat(file);
  assert.ok(size < BYTES_MAX, `${file} has ${size} bytes`);
}
