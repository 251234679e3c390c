"use strict";
// The state of the page and what the reader does to it.

const $ = (id) => document.getElementById(id);
const PAN = 0.2, ZOOM = 1.5; // of one press of a key
const LINE = 16; // pixels of a wheel's line

const state = {
  run: null, theme: null, lanes: [], home: null, height: 0,
  view: { from: 0, to: 1 }, critical: false,
  pointer: null, // where it is on the canvas
  chosen: -1, matches: [], // what the search found
  drag: null, waiting: false,
};

function newFrame() {
  const canvas = $("canvas"), { run, view } = state;
  const ratio = devicePixelRatio || 1;
  const width = $("scroller").clientWidth, height = $("scroller").clientHeight;
  fitCanvas(canvas, width, height, ratio);
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const { deviceWidth, nameWidth } = gutterOf(context);
  const left = deviceWidth + nameWidth + 32;
  const plot = Math.max(width - left - RIGHT, 50);
  return {
    ...state, context, ratio, width, height, left, plot, deviceWidth, nameWidth,
    scroll: $("scroller").scrollTop, rate: plot / (view.to - view.from),
  };
}

// Setting the size clears a canvas, so it is set only when it changed.
function fitCanvas(canvas, width, height, ratio) {
  const wide = Math.round(width * ratio), high = Math.round(height * ratio);
  if (canvas.width === wide && canvas.height === high) return;
  canvas.width = wide;
  canvas.height = high;
  canvas.style.width = `${width}px`;
  canvas.style.height = `${height}px`;
  $("spacer").style.height = `${Math.max(AXIS + state.height - height, 0)}px`;
}

function gutterOf(context) {
  const widest = (font, words) => {
    context.font = font;
    return Math.min(Math.max(...words.map((word) => context.measureText(word).width)), 140);
  };
  return {
    deviceWidth: widest("600 " + FONT, state.lanes.map((lane) => lane.device)),
    nameWidth: widest(FONT, [...state.lanes.map((lane) => lane.name), "peak 9.99 GB"]),
  };
}

function render() {
  state.waiting = false;
  const frame = newFrame();
  const at = state.pointer && !state.drag ? under(frame, state.pointer.x, state.pointer.y) : null;
  const saying = at && sayingOf(state.run, at);
  markFor(frame, saying && at.bar >= 0 ? at : null);
  drawFrame(frame);
  if (saying) placeBox(saying, state.pointer.x, state.pointer.y);
  else if (state.chosen >= 0 && !state.drag) boxOfChosen(frame);
  else showBox($("hover"), null);
}

// What is outlined: the operation pointed at, in the lane pointed at unless that is the path's.
function markFor(frame, at) {
  frame.marked = at ? at.lane.stream.ops[at.bar] : state.chosen;
  const home = state.lanes[state.home[frame.marked]];
  frame.markedLane = at && at.lane !== state.lanes[0] ? at.lane : home;
}

function placeBox(saying, x, y) {
  const corner = $("canvas").getBoundingClientRect();
  showBox($("hover"), saying, corner.left + x, corner.top + y);
}

function boxOfChosen(frame) {
  const id = state.chosen, { op } = state.run;
  const lane = state.lanes[state.home[id]];
  const x = xOf(frame, (op.start[id] + op.end[id]) / 2), y = yOf(frame, lane) + lane.height;
  const inside = x >= frame.left && x <= frame.left + frame.plot && y > AXIS && y < frame.height;
  if (inside) placeBox({ title: labelOf(state.run, id), rows: factsOf(state.run, id) }, x, y);
  else showBox($("hover"), null);
}

function redraw() {
  if (state.waiting) return;
  state.waiting = true;
  requestAnimationFrame(render);
}

function look(view) {
  state.view = view;
  redraw();
}

const lookAtAll = () => look({ from: 0, to: state.run.finish });

function zoomAt(x, factor) {
  const { left, plot, rate } = newFrame();
  const time = state.view.from + (Math.min(Math.max(x, left), left + plot) - left) / rate;
  look(zoomed(state.view, time, factor, state.run.finish));
}

function onWheel(event) {
  const frame = newFrame();
  if (event.offsetX < frame.left) return; // over the names the wheel scrolls
  event.preventDefault();
  const unit = event.deltaMode === WheelEvent.DOM_DELTA_PIXEL ? 1 : LINE;
  const sideways = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
  if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) {
    look(panned(state.view, (sideways * unit) / frame.rate, state.run.finish));
  } else {
    zoomAt(event.offsetX, Math.exp(event.deltaY * unit * 0.002));
  }
}

function onDown(event) {
  if (event.button !== 0) return;
  const { scrollTop } = $("scroller");
  state.drag = { x: event.clientX, y: event.clientY, view: state.view, scroll: scrollTop };
  $("canvas").setPointerCapture(event.pointerId);
}

function onMove(event) {
  state.pointer = { x: event.offsetX, y: event.offsetY };
  if (state.drag) {
    const { x, y, view, scroll } = state.drag;
    state.view = panned(view, (x - event.clientX) / newFrame().rate, state.run.finish);
    $("scroller").scrollTop = scroll + y - event.clientY;
  }
  redraw();
}

function onUp() {
  state.drag = null;
  redraw();
}

function onLeave() {
  state.pointer = null;
  redraw();
}

const KEYS = {
  "+": () => zoomMiddle(1 / ZOOM),
  "=": () => zoomMiddle(1 / ZOOM),
  "-": () => zoomMiddle(ZOOM),
  0: lookAtAll,
  ArrowLeft: () => panBy(-PAN),
  ArrowRight: () => panBy(PAN),
};

function zoomMiddle(factor) {
  look(zoomed(state.view, (state.view.from + state.view.to) / 2, factor, state.run.finish));
}

function panBy(share) {
  look(panned(state.view, share * (state.view.to - state.view.from), state.run.finish));
}

function onKey(event) {
  const act = KEYS[event.key];
  const typing = event.target.type === "search";
  if (!act || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act();
}

function onQuery() {
  const query = parseQuery($("search").value);
  state.matches = query ? matchesOf(state.run, state.home, query) : [];
  choose(state.matches.length ? 0 : -1);
}

// Shows the match of this place in the list; -1 for none.
function choose(place) {
  const { matches } = state;
  const asked = $("search").value.trim() !== "";
  state.chosen = place < 0 ? -1 : matches[place];
  $("found").textContent = place >= 0 ? `${place + 1} of ${matches.length}` : asked ? "none" : "";
  if (place >= 0) {
    bringIntoSight(state.lanes[state.home[state.chosen]]);
    state.view = viewOf(state.run, state.view, state.chosen);
  }
  redraw();
}

function bringIntoSight(lane) {
  const room = $("scroller").clientHeight - AXIS - lane.height - GAP, { scrollTop } = $("scroller");
  $("scroller").scrollTop = Math.min(Math.max(scrollTop, lane.top - room), lane.top - GAP);
}

// Return goes to the next match, with Shift to the one before.
function onSubmit(event) {
  event.preventDefault();
  const { matches } = state;
  if (!matches.length) return;
  const step = event.shiftKey ? matches.length - 1 : 1;
  choose((matches.indexOf(state.chosen) + step) % matches.length);
}

function fillLegend() {
  const { run, theme } = state;
  const phases = new Set(run.streams.flatMap((stream) => [...new Set(stream.phase)]));
  const kinds = new Set(run.memory.flatMap(({ parts }) => parts.map(({ index }) => index)));
  const words = (table, colours, used) =>
    table.map(([, , word], i) => [colours[i], word, used.has(i)]).filter(([, , there]) => there);
  const shown = words(run.phases, theme.phases, phases);
  if (phases.has(run.phases.length)) shown.push([theme.phases.at(-1), "waiting for a copy engine"]);
  $("legend").replaceChildren(
    legendLine("operations", shown), legendLine("memory", words(run.kinds, theme.kinds, kinds)));
  if (!run.memory.some((memory) => memoryTop(run, memory) > memory.capacity)) return;
  const dash = document.createElement("i"), capacity = document.createElement("span");
  dash.className = "line";
  capacity.append(dash, "capacity");
  $("legend").lastChild.append(capacity);
}

function legendLine(name, entries) {
  const made = document.createElement("div");
  made.append(element("b", name));
  for (const [colour, word] of entries) {
    const entry = document.createElement("span"), square = document.createElement("i");
    square.style.background = colour;
    entry.append(square, word);
    made.append(entry);
  }
  return made;
}

function useTheme() {
  state.theme = readTheme(state.run);
  fillLegend();
  redraw();
}

function listen() {
  const canvas = $("canvas"), search = $("search");
  canvas.addEventListener("wheel", onWheel, { passive: false });
  canvas.addEventListener("pointerdown", onDown);
  canvas.addEventListener("pointermove", onMove);
  canvas.addEventListener("pointerup", onUp);
  canvas.addEventListener("pointercancel", onUp);
  canvas.addEventListener("pointerleave", onLeave);
  canvas.addEventListener("dblclick", lookAtAll);
  addEventListener("keydown", onKey);
  search.addEventListener("input", onQuery);
  search.addEventListener("keydown", (event) => event.key === "Enter" && onSubmit(event));
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  $("critical").addEventListener("change", (event) => {
    state.critical = event.target.checked;
    redraw();
  });
  $("scroller").addEventListener("scroll", redraw);
  new ResizeObserver(render).observe($("scroller")); // at once: it is called before painting
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", useTheme);
}

async function start() {
  if (!("DecompressionStream" in window)) {
    $("found").textContent = "This page needs a browser of 2023 or newer.";
    return;
  }
  state.run = readRun(await unpack($("data").textContent));
  $("data").remove();
  Object.assign(state, layOut(state.run));
  state.view = { from: 0, to: state.run.finish };
  $("notes").hidden = !$("notes").querySelector("li");
  listen();
  useTheme();
}

const ready = start();
