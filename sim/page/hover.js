"use strict";
// What lies under the pointer, and the box that says so. Names are text here, never markup.

const NEAR = 3; // pixels beside a bar that still count as on it

// The lane and, in a stream, the index of the bar there (-1 for none).
function under(frame, x, y) {
  if (x < frame.left || x > frame.left + frame.plot || y < AXIS) return null;
  const lane = frame.lanes.find((other) => {
    const top = yOf(frame, other);
    return top <= y && y < top + other.height;
  });
  if (!lane) return null;
  const time = frame.view.from + (x - frame.left) / frame.rate;
  return { lane, time, bar: lane.stream ? barAt(lane.stream, time, NEAR / frame.rate) : -1 };
}

function barAt(stream, time, near) {
  const i = firstAbove(stream.reach, time);
  if (i < stream.start.length && stream.start[i] <= time) return i;
  const gapBefore = i > 0 ? time - stream.reach[i - 1] : Infinity;
  const gapAfter = i < stream.start.length ? stream.start[i] - time : Infinity;
  if (Math.min(gapBefore, gapAfter) > near) return -1;
  return gapBefore < gapAfter ? i - 1 : i;
}

// Title and rows for the box; null where there is nothing to say.
function sayingOf(run, { lane, time, bar }) {
  if (lane.memory) return memorySaying(run, lane.memory, time);
  if (bar < 0) return null;
  const id = lane.stream.ops[bar];
  return { title: labelOf(run, id), rows: factsOf(run, id) };
}

function memorySaying(run, memory, time) {
  const i = firstAbove(memory.times, time) - 1;
  if (i < 0) return null;
  const parts = memory.parts.filter(({ level }) => level[i] > 0);
  const rows = parts.map(({ index, level }) => [run.kinds[index][2], sizeText(level[i])]).reverse();
  const title = `${memory.device}: ${sizeText(memory.total[i])} of ${sizeText(memory.capacity)}`;
  return { title, rows: [...rows, ["at", dateText(time, run.finish * 1e-5, run.finish)]] };
}

function element(name, text) {
  const made = document.createElement(name);
  made.textContent = text;
  return made;
}

function showBox(box, saying, x, y) {
  box.hidden = !saying;
  if (!saying) return;
  const list = document.createElement("dl");
  for (const [word, text] of saying.rows) list.append(element("dt", word), element("dd", text));
  box.replaceChildren(element("strong", saying.title), list);
  const { width, height } = box.getBoundingClientRect();
  box.style.left = `${x + 16 + width < innerWidth ? x + 16 : Math.max(x - 16 - width, 4)}px`;
  box.style.top = `${Math.max(Math.min(y + 14, innerHeight - height - 6), 4)}px`;
}
