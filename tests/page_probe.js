// Put after a page's own script by tests/sim/test_page.py: uses the page as a reader does, and
// writes what it saw into the page, for the test to compare with what must be there.

// Virtual pointers cannot be captured.
HTMLCanvasElement.prototype.setPointerCapture = () => {};

function pointer(type, x, y, more = {}) {
  const canvas = $("canvas"), corner = canvas.getBoundingClientRect();
  const kind = type === "wheel" ? WheelEvent : type === "dblclick" ? MouseEvent : PointerEvent;
  canvas.dispatchEvent(new kind(type, {
    clientX: corner.left + x, clientY: corner.top + y, bubbles: true, cancelable: true, ...more,
  }));
  render();
}

const laneOf = (device, name) => {
  let group = "";
  return state.lanes.find((lane) => {
    group = lane.device || group;
    return group === device && lane.name === name;
  });
};

// Middle of a lane at a time, in pixels of the canvas.
function spot(lane, time) {
  const frame = newFrame();
  return [xOf(frame, time), yOf(frame, lane) + lane.height / 2];
}

function hoverAt(device, name, time) {
  pointer("pointermove", ...spot(laneOf(device, name), time));
  return $("hover").hidden ? "" : $("hover").innerText;
}

function pixelAt(device, name, time) {
  pointer("pointerleave", 0, 0);
  const [x, y] = spot(laneOf(device, name), time).map((at) => Math.round(at * devicePixelRatio));
  return [...$("canvas").getContext("2d").getImageData(x, y + 4, 1, 1).data.slice(0, 3)];
}

function press(key) {
  const event = new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event);
  render();
  return { ...state.view };
}

function search(text, ...keys) {
  $("search").value = text;
  $("search").dispatchEvent(new Event("input"));
  for (const shiftKey of keys) {
    const event = new KeyboardEvent("keydown", { key: "Enter", shiftKey, cancelable: true });
    $("search").dispatchEvent(event);
  }
  render();
  return { chosen: state.chosen, found: $("found").textContent, view: { ...state.view } };
}

function seeZoom() {
  // at a whole pixel, as events have it
  const frame = newFrame(), x = Math.round(frame.left + 0.4 * frame.plot), y = AXIS + 20;
  const time = (x - frame.left) / frame.rate;
  pointer("wheel", x, y, { deltaY: -700 });
  const near = { ...state.view, moved: xOf(newFrame(), time) - x };
  pointer("pointerdown", x, y);
  pointer("pointermove", x - 50, y);
  pointer("pointerup", x - 50, y);
  const dragged = { ...state.view, seconds: 50 / newFrame().rate };
  for (let i = 0; i < 60; i++) pointer("wheel", x, y, { deltaY: -700 });
  const deepest = { ...state.view };
  pointer("dblclick", x, y);
  return { near, dragged, deepest, reset: { ...state.view } };
}

function seeKeys() {
  const seen = { plus: press("+"), right: press("ArrowRight"), left: press("ArrowLeft") };
  seen.minus = press("-");
  press("+");
  return { ...seen, zero: press("0") };
}

function seeCritical(spots) {
  const before = spots.map((at) => pixelAt(...at));
  $("critical").click();
  const after = spots.map((at) => pixelAt(...at));
  $("critical").click();
  return { before, after };
}

// A stream of many bars, each far thinner than a pixel, that cover half of the time.
function seeThinBars(count) {
  const start = Float64Array.from({ length: count }, (_, i) => i / count);
  const end = start.map((time) => time + 0.5 / count);
  const phase = Int16Array.from({ length: count }, (_, i) => (i % 4 ? 0 : 1));
  const stream = { start, end, reach: end, phase, ops: phase };
  const strip = new Uint32Array(100);
  const scale = { from: 0, to: 1, rate: 100, labelled: 22, parted: 5, gap: 1 };
  const wide = paintStream(strip, stream, scale, [0x0000ff, 0x00ff00], null);
  const strengths = [...strip].map((pixel) => pixel >>> 24);
  return {
    labels: wide.length, colours: [...new Set([...strip].map((pixel) => pixel & 0xffffff))],
    weakest: Math.min(...strengths), strongest: Math.max(...strengths),
  };
}

function seePage(questions) {
  render();
  return {
    hovers: questions.hovers.map((at) => hoverAt(...at)),
    pixels: questions.pixels.map((at) => pixelAt(...at)),
    critical: seeCritical(questions.pixels),
    zoom: seeZoom(),
    keys: seeKeys(),
    searches: questions.searches.map((words) => search(...words)),
    cleared: search(""),
    reset: press("0"),
    thin: seeThinBars(100000),
    legend: $("legend").innerText,
    images: document.images.length,
    scripts: document.scripts.length,
    hacked: "hacked" in window,
    names: state.lanes.map((lane) => [lane.device, lane.name]),
  };
}

function report(seen) {
  const made = document.createElement("pre");
  made.id = "seen";
  made.hidden = true;
  made.textContent = btoa(encodeURIComponent(JSON.stringify(seen)));
  document.body.append(made);
}

ready
  .then(() => report(seePage(QUESTIONS)))
  .catch((error) => report({ error: String(error.stack) }));
