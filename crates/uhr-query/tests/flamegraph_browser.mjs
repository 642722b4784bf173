// Drives the flame graphs in the folder of the first argument with Chromium; see flamegraph_browser.rs.
import assert from "node:assert/strict";
import { createRequire } from "node:module";
import { copyFileSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const { chromium } = createRequire(join(resolve(process.env.UHR_PLAYWRIGHT), "/"))(
  join(resolve(process.env.UHR_PLAYWRIGHT), "playwright-core"));
const folder = process.argv[2];
const pictures = process.env.UHR_SCREENSHOTS;
const profile = mkdtempSync(join(tmpdir(), "uhr-chromium-"));
const context = await chromium.launchPersistentContext(profile, {
  executablePath: process.env.UHR_CHROMIUM,
  args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync"],
  viewport: { width: 1280, height: 720 },
});
const requests = [], errors = [];

async function open(file, scheme = "light", reducedMotion = "reduce") {
  const page = await context.newPage();
  page.on("request", (request) => requests.push(request.url()));
  page.on("pageerror", (error) => errors.push(String(error)));
  page.on("console", (message) => { if (message.type() === "error") errors.push(message.text()); });
  await page.emulateMedia({ colorScheme: scheme, reducedMotion });
  await page.goto(pathToFileURL(join(folder, file)).href);
  return page;
}

const picture = (page, name) => pictures && page.screenshot({ path: join(pictures, `${name}.png`) });
const frame = (page, name) => page.locator("g[role=treeitem]").filter({ hasText: name }).first();
const box = (page, name) => frame(page, name).locator("rect").evaluate((rect) => ({
  x: Number(rect.getAttribute("x")), y: Number(rect.getAttribute("y")), width: Number(rect.getAttribute("width")),
  shown: rect.parentNode.style.display !== "none",
}));
const focused = (page) => page.evaluate(() => document.activeElement.querySelector("title")?.textContent.split("\n")[0]);
const press = async (page, ...keys) => { for (const key of keys) await page.keyboard.press(key); };
const WHOLE = 1280 - 32;

async function zooms() {
  const page = await open("flame.svg");
  assert.equal((await box(page, "all\n")).width, WHOLE, "fits the window");
  const before = await box(page, "load_orders\n");
  await frame(page, "load_orders\n").click();
  const after = await box(page, "load_orders\n");
  assert.ok(after.width === WHOLE && before.width < WHOLE / 2);
  assert.equal((await box(page, "<module>\n")).width, WHOLE, "callers span the picture");
  assert.equal((await box(page, "summarise\n")).shown, false, "siblings make room");
  assert.ok((await box(page, "vfs_read\n")).width > 0.3 * WHOLE, "callees grow");
  assert.equal((await box(page, "vfs_read\n")).y < after.y, true);
  await frame(page, "vfs_read\n").hover();
  assert.match(await page.locator(".details").textContent(), /^1\.12 s, 13\.2 %, 1,120 samples \(32\.7 % of the zoomed frame\)  ·  vfs_read/);
  await picture(page, "zoomed");
  await press(page, "Escape");
  assert.deepEqual(await box(page, "load_orders\n"), before);
  await frame(page, "load_orders\n").dblclick();
  assert.deepEqual(await box(page, "load_orders\n"), before, "a double click resets");
  await page.setViewportSize({ width: 900, height: 600 });
  await page.waitForFunction(() => document.documentElement.getAttribute("width") === "900");
  assert.equal((await box(page, "all\n")).width, 900 - 32, "follows the window");
  await page.close();
}

async function searches() {
  const page = await open("flame.svg");
  const search = async (text) => {
    await page.locator("input").fill(text);
    return page.locator(".found").textContent();
  };
  await press(page, "Control+f");
  // Twice under gc_collect_main, one on the other, and once under scan_once_unicode: 455 + 2,310 of 8,473 ms.
  assert.equal(await search("PyDict_SetItem"), "3 frames, 32.6 % of 8.47 s");
  assert.equal(await page.locator("g.match").count(), 3);
  assert.equal(await search("^(vfs_read|MALLOC)$"), "2 frames, 22.2 % of 8.47 s");
  assert.equal(await search("_M_realloc_insert<Order const&"), "1 frame, 9.0 % of 8.47 s");
  assert.equal(await search("vector<Order, (["), "0 frames, 0.0 % of 8.47 s", "no regular expression is no error");
  assert.equal(await search("kernel"), "7 frames, 22.2 % of 8.47 s", "kinds of code match");
  await picture(page, "searched");
  assert.equal(await search("gc_"), "1 frame, 5.4 % of 8.47 s");
  await press(page, "Enter");
  assert.equal(await focused(page), "gc_collect_main");
  await press(page, "Escape");
  assert.equal(await page.locator("g.match").count(), 0);
  assert.equal(await page.locator("input").isVisible(), false);
  await press(page, "/", "x");
  assert.equal(await page.locator("input").evaluate((input) => input.value), "x", "the slash opens and is not typed");
  await press(page, "i");
  assert.equal(await page.locator("input").evaluate((input) => input.value), "xi", "letters are typed, not obeyed");
  await page.close();
}

async function walksAndFlips() {
  const page = await open("flame.svg");
  await press(page, "Tab");
  assert.equal(await focused(page), "all");
  await press(page, "ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp", "ArrowUp");
  assert.equal(await focused(page), "summarise", "up goes to the widest callee");
  await press(page, "ArrowLeft");
  assert.equal(await focused(page), "load_orders");
  await press(page, "ArrowRight", "ArrowDown");
  assert.equal(await focused(page), "<module>");
  assert.equal(await page.locator("g[role=treeitem][tabindex]").count(), 1, "one stop for Tab");
  const ring = await page.evaluate(() => getComputedStyle(document.activeElement.querySelector("rect")).strokeWidth);
  assert.equal(ring, "2.5px", "focus is visible");
  await press(page, "ArrowUp", "Enter");
  assert.equal((await box(page, "summarise\n")).width, WHOLE);
  await picture(page, "focused");
  const upright = await box(page, "all\n");
  await press(page, "i");
  assert.ok((await box(page, "all\n")).y < (await box(page, "summarise\n")).y, "callers are above");
  assert.equal(await focused(page), "summarise");
  await press(page, "ArrowDown");
  assert.equal(await focused(page), "matrix_product", "down now goes to callees");
  await picture(page, "icicle");
  await press(page, "i", "Escape");
  assert.deepEqual(await box(page, "all\n"), upright);
  await page.getByRole("button", { name: "Flip" }).click();
  assert.ok((await box(page, "all\n")).y < upright.y, "the buttons work");
  assert.ok(await page.getByRole("treeitem", { level: 1 }).count() === 1);
  await page.close();
}

async function runsNothingFromNames() {
  const page = await open("flame.svg");
  await press(page, "/");
  await page.locator("input").fill("<script>");
  assert.equal(await page.locator("g.match").count(), 2);
  await frame(page, "]]></style>").click();
  await frame(page, "]]></style>").hover();
  assert.equal(await page.evaluate(() => window.pwned), undefined);
  assert.equal(await page.locator("script").count(), 1);
  await page.close();
}

async function readsInTheDarkAndWithoutScripts() {
  const colour = (page, name) => frame(page, name).locator("rect").evaluate((rect) => getComputedStyle(rect).fill);
  const light = await open("flame.svg"), dark = await open("flame.svg", "dark");
  await picture(light, "light");
  await picture(dark, "dark");
  const background = (page) => page.locator("rect.page").evaluate((rect) => getComputedStyle(rect).fill);
  assert.notEqual(await background(light), await background(dark));
  assert.notEqual(await colour(light, "vfs_read\n"), await colour(dark, "vfs_read\n"));
  const moving = await open("flame.svg", "light", "no-preference");
  const duration = (page) => frame(page, "all\n").locator("rect")
    .evaluate((rect) => getComputedStyle(rect).transitionDuration);
  assert.match(await duration(moving), /0\.18s/);
  assert.equal(await duration(light), "0s", "no motion where none is wanted");
  for (const page of [light, dark, moving]) await page.close();

  // An image runs no script: the same file is a complete picture.
  const still = await context.newPage();
  const source = readFileSync(join(folder, "flame.svg")).toString("base64");
  await still.setContent(`<body style="margin:0"><img src="data:image/svg+xml;base64,${source}">`);
  const size = await still.locator("img").evaluate(async (img) => { await img.decode(); return img.naturalWidth; });
  assert.equal(size, 1200);
  await picture(still, "still");
  if (pictures) copyFileSync(join(folder, "flame.svg"), join(pictures, "flame.svg"));
  await still.close();
}

async function drawsDeepStacks() {
  const page = await open("deep.svg");
  const last = await box(page, "descend_999\n");
  assert.ok(last.shown === true && last.y > 19_000);
  await picture(page, "deep");
  await press(page, "Tab");
  for (let step = 0; step < 60; step++) await press(page, "ArrowDown");
  assert.equal(await focused(page), "descend_59");
  const [node, bar] = await page.evaluate(() => [document.activeElement.querySelector("rect"),
    document.querySelector(".bar")].map((element) => element.getBoundingClientRect().toJSON()));
  assert.ok(node.top >= 0 && node.bottom <= bar.top, "what has the focus is in sight");
  assert.ok(Math.abs(bar.bottom - 720) < 1, "the bar stays in the window");
  await picture(page, "deep-walked");
  await page.close();
}

try {
  for (const step of [zooms, searches, walksAndFlips, runsNothingFromNames, readsInTheDarkAndWithoutScripts, drawsDeepStacks]) {
    await step();
    console.error(`ok ${step.name}`);
  }
  assert.deepEqual(errors, []);
  assert.ok(requests.every((url) => url.startsWith("file:")), "nothing is fetched");
} finally {
  await context.close();
  rmSync(profile, { recursive: true, force: true });
}
