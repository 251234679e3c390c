"use strict";
// Where things lie: lanes from top to bottom, time from left to right. Lengths in CSS pixels.

const AXIS = 26, ROW = 17, PANEL = 58, GAP = 8, RIGHT = 14;
const DEEPEST = 1e-8; // part of the run that fills the window at the deepest zoom

function layOut(run) {
  const lanes = [];
  let top = GAP, device = null;
  for (const stream of run.streams) {
    const first = stream.device !== device;
    if (first && device !== null) top += GAP;
    const named = first ? stream.device : "";
    lanes.push({ stream, top, height: ROW, device: named, name: stream.name, first });
    device = stream.device;
    top += ROW;
  }
  for (const memory of run.memory) {
    top += GAP;
    lanes.push({ memory, top, height: PANEL, device: memory.device, name: "memory", first: true });
    top += PANEL;
  }
  return { lanes, height: top + GAP, home: homes(run) };
}

// Lane in which each operation is shown first; -1 for what is shown nowhere. Lane 0 is the path.
function homes(run) {
  const home = new Int16Array(run.op.start.length).fill(-1);
  for (let at = run.streams.length - 1; at > 0; at--) {
    for (const id of run.streams[at].ops) home[id] = at;
  }
  return home;
}

function zoomed(view, time, factor, finish) {
  const old = view.to - view.from;
  const span = Math.min(Math.max(old * factor, finish * DEEPEST), finish);
  return moved(time - ((time - view.from) / old) * span, span, finish);
}

function panned(view, seconds, finish) {
  return moved(view.from + seconds, view.to - view.from, finish);
}

// A view of this length from this time, kept inside the run.
function moved(from, span, finish) {
  const start = Math.min(Math.max(from, 0), finish - span);
  return { from: start, to: start + span };
}

// Step of the time axis: 1, 2 or 5 times a power of ten seconds, at least `least` seconds.
function niceStep(least) {
  const power = 10 ** Math.floor(Math.log10(least));
  return [1, 2, 5, 10].find((digit) => digit * power >= least * (1 - 1e-9)) * power;
}
