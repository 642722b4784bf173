// Zoom, search, flip and keyboard for a flame graph that is complete without them. Text is only ever set as text.
"use strict";
(() => {
  const SVG = "http://www.w3.org/2000/svg";
  const MARGIN = 16, ROW = 19, COLUMN = 7.25, PADDING = 8, BAR = 36;
  const svg = document.currentScript.closest("svg");
  const standalone = svg === document.documentElement;
  const tree = svg.querySelector(".frames");
  const top = Number(tree.dataset.top), rows = Number(tree.dataset.rows);

  // The frames stand in preorder with their level, which is all that is needed to know who called whom.
  const frames = [];
  const path = [];
  for (const node of tree.children) {
    const depth = Number(node.getAttribute("aria-level")) - 1;
    const lines = node.querySelector("title").textContent.split("\n");
    const frame = {
      node, depth, rect: node.querySelector("rect"), text: node.querySelector("text"),
      start: Number(node.dataset.start), value: Number(node.dataset.value),
      name: lines[0], code: lines.length > 2 ? lines[1] : "", lines,
      caller: path[depth - 1] ?? null, callees: [], index: frames.length, shown: true,
    };
    frame.caller?.callees.push(frame);
    path[depth] = frame;
    frames.push(frame);
    node.frame = frame;
  }
  const root = frames[0];
  let zoomed = root, icicle = tree.dataset.icicle === "true", width = 0;
  // The one frame that Tab reaches, and the one under the pointer.
  let current = root, pointed = null;

  function element(parent, name, attributes = {}, text = "") {
    const made = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text) made.textContent = text;
    return parent.appendChild(made);
  }

  // As the writer cuts: characters from Hangul and Kana on may take two columns.
  function cut(text, columns) {
    let used = 0, kept = "";
    for (const character of text) {
      const code = character.codePointAt(0);
      used += code >= 0x1100 && (code < 0x2000 || code >= 0x2300) ? 2 : 1;
      if (used > columns) return kept.length > 1 ? kept + "…" : "";
      if (used < columns) kept += character;
    }
    return text;
  }

  function draw() {
    const room = standalone ? svg.clientWidth || window.innerWidth : svg.parentNode.clientWidth;
    width = Math.max(room, 880);
    const height = Math.max(top + rows * ROW + MARGIN + BAR, standalone ? window.innerHeight : 0);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    const scale = (width - 2 * MARGIN) / (zoomed.value || 1);
    const end = zoomed.start + zoomed.value;
    for (const frame of frames) place(frame, scale, end);
    placeButtons();
    placeBar();
    describe();
  }

  function place(frame, scale, end) {
    const isCaller = frame.depth < zoomed.depth && frame.start <= zoomed.start && frame.start + frame.value >= end;
    const inside = frame.depth >= zoomed.depth && frame.start >= zoomed.start && frame.start + frame.value <= end;
    const wide = isCaller || frame === zoomed ? width - 2 * MARGIN : frame.value * scale;
    frame.shown = (isCaller || inside) && wide >= .3;
    frame.node.style.display = frame.shown ? "" : "none";
    frame.node.classList.toggle("caller", isCaller);
    if (!frame.shown) return;
    const x = isCaller ? MARGIN : MARGIN + (frame.start - zoomed.start) * scale;
    const y = top + (icicle ? frame.depth : rows - 1 - frame.depth) * ROW;
    frame.rect.setAttribute("x", x);
    frame.rect.setAttribute("y", y);
    frame.rect.setAttribute("width", wide);
    const text = cut(frame.name, Math.floor((wide - PADDING) / COLUMN));
    if (!text && !frame.text) return;
    frame.text ??= element(frame.node, "text");
    frame.text.setAttribute("x", x + PADDING / 2);
    frame.text.setAttribute("y", y + 13);
    frame.text.textContent = text;
  }

  function zoom(frame) {
    zoomed = frame;
    draw();
    if (!current.shown) makeCurrent(zoomed);
  }

  function flip() {
    icicle = !icicle;
    draw();
    reveal(current);
  }

  // Buttons stand at the right of the legend's row.
  const buttons = [["Search", "/", () => openSearch()], ["Flip", "i", flip], ["Reset", "Esc", () => reset()]];
  for (const button of buttons) {
    const [label, key, act] = button;
    const size = (label.length + key.length) * 7 + 28;
    const node = element(svg, "g", { class: "button", role: "button", tabindex: 0, "aria-label": label });
    element(node, "rect", { width: size, height: 24, rx: 5 });
    element(node, "text", { x: 10, y: 16 }, label);
    element(node, "text", { class: "key", x: size - 10, y: 16, "text-anchor": "end" }, key);
    node.addEventListener("click", (event) => { event.stopPropagation(); act(); });
    node.addEventListener("dblclick", (event) => event.stopPropagation());
    node.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" && event.key !== " ") return;
      event.preventDefault();
      event.stopPropagation();
      act();
    });
    Object.assign(button, { node, size });
  }
  function placeButtons() {
    let x = width - MARGIN;
    for (const { node, size } of [...buttons].reverse()) {
      node.setAttribute("transform", `translate(${x - size} ${top - 38})`);
      x -= size + 8;
    }
  }

  // The bar stays at the foot of the window: the frame that is pointed at on the left, the search on the right.
  const bar = element(svg, "g", { class: "bar" });
  const barBack = element(bar, "rect", { height: BAR });
  const barLine = element(bar, "line");
  const details = element(bar, "text", { class: "details", x: MARGIN, y: 22 });
  const found = element(bar, "text", { class: "found", y: 22, "text-anchor": "end", role: "status" });
  const field = element(bar, "foreignObject", { y: 6, width: 240, height: 24 });
  const input = field.appendChild(document.createElementNS("http://www.w3.org/1999/xhtml", "input"));
  input.type = "text";
  input.spellcheck = false;
  input.placeholder = "name, module or regex";
  input.setAttribute("aria-label", "Search frames by name, module or regular expression");
  field.style.display = "none";

  function placeBar() {
    const height = Number(svg.getAttribute("height"));
    const y = standalone ? Math.min(height, window.scrollY + window.innerHeight) - BAR : height - BAR;
    bar.setAttribute("transform", `translate(0 ${y})`);
    barBack.setAttribute("width", width);
    barLine.setAttribute("x2", width);
    field.setAttribute("x", width - MARGIN - 240);
    found.setAttribute("x", width - MARGIN - 252);
  }

  const searching = () => field.style.display !== "none";

  function describe() {
    const frame = pointed ?? current;
    let numbers = frame.lines.at(-1);
    if (zoomed !== root && frame.depth > zoomed.depth) {
      numbers += ` (${(100 * frame.value / zoomed.value).toFixed(1)} % of the zoomed frame)`;
    }
    const text = [numbers, frame.name, frame.code].filter(Boolean).join("  ·  ");
    const room = width - 2 * MARGIN - (searching() ? 260 + found.textContent.length * 7 : 0);
    details.textContent = cut(text, Math.floor(room / 7));
  }

  function openSearch() {
    field.style.display = "";
    input.focus({ preventScroll: true });
    input.select();
    search();
  }

  function closeSearch() {
    field.style.display = "none";
    input.value = "";
    search();
  }

  // A frame matches by a part of its text or by a regular expression, in any case. A stack counts once, however many
  // of its frames match: only matches without a matching caller add to the sum.
  function search() {
    const wanted = input.value.trim().toLowerCase();
    let pattern = null;
    try { pattern = new RegExp(input.value.trim(), "i"); } catch { /* Not a regular expression: plain text. */ }
    const matches = (text) => text.toLowerCase().includes(wanted) || (pattern?.test(text) ?? false);
    let count = 0, sum = 0, outermost = Infinity;
    for (const frame of frames) {
      if (frame.depth <= outermost) outermost = Infinity;
      const match = wanted !== "" && frame !== root && (matches(frame.name) || matches(frame.code));
      frame.node.classList.toggle("match", match);
      if (!match) continue;
      count += 1;
      if (outermost < Infinity) continue;
      outermost = frame.depth;
      sum += frame.value;
    }
    svg.classList.toggle("searching", wanted !== "");
    const share = (100 * sum / (root.value || 1)).toFixed(1);
    const plural = count === 1 ? "frame" : "frames";
    found.textContent = wanted === "" ? "" : `${count} ${plural}, ${share} % of ${tree.dataset.total}`;
    describe();
  }

  function reset() {
    closeSearch();
    zoom(root);
  }

  function makeCurrent(frame) {
    current.node.removeAttribute("tabindex");
    current = frame;
    current.node.setAttribute("tabindex", 0);
  }

  function focus(frame) {
    if (!frame) return;
    makeCurrent(frame);
    pointed = null;
    frame.node.focus({ preventScroll: true });
    reveal(frame);
    describe();
  }

  // Scrolls so that the frame does not hide behind the bar.
  function reveal(frame) {
    if (!standalone) return frame.node.scrollIntoView({ block: "nearest" });
    const above = Number(frame.rect.getAttribute("y")) - ROW;
    const below = above + 3 * ROW + BAR - window.innerHeight;
    if (window.scrollY > above) window.scrollTo(0, above);
    else if (window.scrollY < below) window.scrollTo(0, below);
    placeBar();
  }

  function neighbour(frame, step) {
    for (let at = frame.index + step; at >= 0 && at < frames.length; at += step) {
      if (frames[at].depth === frame.depth && frames[at].shown) return frames[at];
    }
    return null;
  }

  function widest(frame) {
    // From a caller of the zoomed frame the way leads back to it: its other callees are not shown.
    const shown = frame.callees.filter((callee) => callee.shown);
    return shown.reduce((best, callee) => (best && best.value >= callee.value ? best : callee), null);
  }

  function step(key) {
    const from = document.activeElement?.frame;
    if (!from) return focus(current);
    if (key === "ArrowLeft") return focus(neighbour(from, -1));
    if (key === "ArrowRight") return focus(neighbour(from, 1));
    focus((key === "ArrowUp") === icicle ? from.caller : widest(from));
  }

  const keys = standalone ? window : svg;
  keys.addEventListener("keydown", (event) => {
    const find = (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "f";
    const inField = event.target === input;
    // A second Ctrl-F reaches the browser's own search.
    if (find && !inField) { event.preventDefault(); return openSearch(); }
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      if (searching()) { closeSearch(); if (inField) focus(current); }
      else zoom(root);
    } else if (inField) {
      if (event.key === "Enter") focus(frames.find((frame) => frame.shown && frame.node.classList.contains("match")));
      return;
    } else if (event.key === "/") openSearch();
    else if (event.key === "i") flip();
    else if (event.key === "Enter" && document.activeElement?.frame) zoom(document.activeElement.frame);
    else if (event.key.startsWith("Arrow")) step(event.key);
    else return;
    event.preventDefault();
  });
  input.addEventListener("input", search);

  tree.addEventListener("click", (event) => {
    const frame = event.target.closest("g[role=treeitem]")?.frame;
    if (frame) { focus(frame); zoom(frame); }
  });
  svg.addEventListener("dblclick", (event) => { if (!field.contains(event.target)) reset(); });
  tree.addEventListener("pointerover", (event) => {
    pointed = event.target.closest("g[role=treeitem]")?.frame ?? null;
    describe();
  });
  tree.addEventListener("pointerleave", () => { pointed = null; describe(); });

  root.node.setAttribute("tabindex", 0);
  window.addEventListener("resize", draw);
  window.addEventListener("scroll", placeBar, { passive: true });
  draw();
  // Moving thousands of rectangles is slower than it is pretty.
  svg.classList.toggle("moving", frames.length < 2000);
})();
