// A real browser, and pages that remember what went wrong on them.
import { execFileSync } from "node:child_process";
import { chromium } from "playwright-core";

const found = process.env.CHROMIUM ?? "chromium-headless-shell";
const executablePath = execFileSync("sh", ["-c", `command -v ${found}`], { encoding: "utf8" }).trim();

export const PAGES = {
  overview: "/",
  locks: "/locks",
  lock: "/lock?name=deal%3A42",
  contention: "/contention",
  elections: "/elections",
  idempotency: "/idempotency",
  markers: "/markers?kind=processing",
  deadlines: "/deadlines",
  pool: "/deadlines?pool=payments",
  nodes: "/nodes",
  audit: "/audit",
  playground: "/playground",
};

export function launch() {
  return chromium.launch({ executablePath, args: ["--no-sandbox"] });
}

/** A page in a context of its own. `problems` has what its console and its policy complained about. */
export async function open(browser, base, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1360, height: 860 }, ...options });
  const page = await context.newPage();
  const problems = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && problems.push(message.text()));
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(base) && !request.url().startsWith("data:")) problems.push(`asks ${request.url()}`);
  });
  return { page, problems, close: () => context.close() };
}

/** Goes to a path and waits until it has its data. */
export async function visit(page, base, path) {
  await page.goto(base + path);
  await page.locator(".live.good").waitFor();
  await page.locator("main h1").waitFor();
  await page.locator("main .loading").first().waitFor({ state: "detached" });
}
