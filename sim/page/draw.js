"use strict";
// Draws a frame. Every function is told where by `frame`, made in page.js: the context, the theme,
// the view, the lanes, and the size of the plot.

const LABELLED = 22, PARTED = 5; // pixels from which a bar gets a label, and a gap after it
const FONT = '11px system-ui, "Helvetica Neue", Arial, sans-serif';
const SMALL = FONT.replace("11px", "10px");

function readTheme(run) {
  const style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue("--" + name).trim();
  const names = ["page", "ink", "quiet", "line", "band", "path"];
  const theme = Object.fromEntries(names.map((name) => [name, colour(name)]));
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  // black bars would vanish on a dark page
  const seen = ([, hex]) => (dark && hex === "#000000" ? "#e6e6e6" : hex);
  theme.phases = [...run.phases.map(seen), "#9a9a9a"];
  theme.kinds = run.kinds.map(seen);
  return theme;
}

function drawFrame(frame) {
  const { context, theme, width, height } = frame;
  context.fillStyle = theme.page;
  context.fillRect(0, 0, width, height);
  context.font = FONT;
  context.textBaseline = "middle";
  const inSight = frame.lanes.filter((lane) => {
    const y = yOf(frame, lane);
    return y + lane.height > AXIS && y < height;
  });
  drawBands(frame, inSight);
  drawGrid(frame);
  drawStreams(frame, inSight.filter((lane) => lane.stream));
  for (const lane of inSight) if (lane.memory) drawMemory(frame, lane);
  if (frame.critical) drawPath(frame);
  drawMarks(frame);
  drawGutter(frame, inSight);
  drawAxis(frame);
}

const yOf = (frame, lane) => AXIS + lane.top - frame.scroll;
const xOf = (frame, time) => frame.left + (time - frame.view.from) * frame.rate;

// How times become device pixels, for the painting functions.
function deviceScale(frame) {
  const { view, rate, ratio } = frame;
  return {
    from: view.from, to: view.to, rate: rate * ratio,
    labelled: LABELLED * ratio, parted: PARTED * ratio, gap: 0.8 * ratio,
  };
}

function drawBands(frame, lanes) {
  const { context, theme, left, plot } = frame;
  for (const lane of lanes) {
    const y = yOf(frame, lane);
    context.fillStyle = theme.band;
    context.fillRect(left, y + 1, plot, lane.height - 2);
  }
}

function drawStreams(frame, lanes) {
  if (!lanes.length) return;
  const { context, run, theme, left, plot, ratio } = frame;
  const width = Math.round(plot * ratio);
  const image = new ImageData(width, lanes.length);
  const numbers = new Uint32Array(image.data.buffer);
  const pixels = theme.phases.map(pixelOf);
  const scale = deviceScale(frame);
  const faded = frame.critical ? (id) => !run.onPath[id] : null;
  const wide = lanes.map((lane, row) => {
    const strip = numbers.subarray(row * width, (row + 1) * width);
    return paintStream(strip, lane.stream, scale, pixels, faded);
  });
  const strips = canvasOf(image);
  context.imageSmoothingEnabled = false;
  lanes.forEach((lane, row) => {
    const y = yOf(frame, lane);
    context.drawImage(strips, 0, row, width, 1, left, y + 1, plot, lane.height - 2);
    for (const bar of wide[row]) drawLabel(frame, lane, bar);
  });
}

function canvasOf(image) {
  const canvas = new OffscreenCanvas(image.width, image.height);
  canvas.getContext("2d").putImageData(image, 0, 0);
  return canvas;
}

function drawLabel(frame, lane, { i, left, right }) {
  const { context, run, theme, ratio } = frame;
  const { stream } = lane;
  const id = stream.ops[i];
  const room = (right - left) / ratio - 6;
  const words = stream === run.streams[0]
    ? [run.resources[run.path.resource[i]]]
    : [labelOf(run, id), shortLabelOf(run, id)];
  context.font = SMALL;
  const text = words.find((word) => context.measureText(word).width <= room);
  if (!text) return;
  const plain = !frame.critical || run.onPath[id];
  context.fillStyle = plain ? inkOn(theme.phases[stream.phase[i]]) : theme.quiet;
  context.textAlign = "center";
  const x = frame.left + (left + right) / 2 / ratio;
  context.fillText(text, x, yOf(frame, lane) + lane.height / 2 + 0.5);
}

function drawMemory(frame, lane) {
  const { context, run, theme, left, plot, ratio } = frame;
  const { memory } = lane;
  const width = Math.round(plot * ratio), height = Math.round((lane.height - 2) * ratio);
  const image = new ImageData(width, height);
  const top = memoryTop(run, memory);
  const y = yOf(frame, lane) + 1;
  paintMemory(
    new Uint32Array(image.data.buffer), width, height, memory, deviceScale(frame), top,
    theme.kinds.map(pixelOf),
  );
  context.drawImage(canvasOf(image), 0, 0, width, height, left, y, plot, lane.height - 2);
  if (top < memory.capacity) return;
  context.strokeStyle = theme.ink;
  context.setLineDash([5, 3]);
  line(context, left, y + (lane.height - 2) * (1 - memory.capacity / top), left + plot, null);
  context.setLineDash([]);
}

// A straight line; with `y2` null a level one. Half pixels keep it sharp.
function line(context, x1, y1, x2, y2) {
  context.beginPath();
  context.moveTo(x1, y2 === null ? Math.round(y1) + 0.5 : y1);
  context.lineTo(x2, y2 === null ? Math.round(y1) + 0.5 : y2);
  context.stroke();
}

// The path as a line under its operations, and up and down where it changes streams.
function drawPath(frame) {
  const { context, theme, left, plot, height } = frame;
  const { level, upright, jumps } = tracePath(frame);
  context.save();
  context.beginPath();
  context.rect(left, AXIS, plot, height - AXIS);
  context.clip();
  context.strokeStyle = theme.path;
  context.lineWidth = 2;
  context.stroke(level);
  context.lineWidth = 1;
  // where it jumps in every few pixels the jumps would hide the bars
  context.globalAlpha = Math.min(1, Math.max(plot / 8 / jumps, 0.12));
  context.stroke(upright);
  context.restore();
}

// Lines of the path in sight; all jumps within one pixel are one line.
function tracePath(frame) {
  const { op, start, end } = frame.run.path;
  const level = new Path2D(), upright = new Path2D();
  let jumps = 0, column = -1, low = 0, high = 0, before = null;
  const settle = () => {
    if (high <= low) return;
    jumps++;
    upright.moveTo(column + 0.5, low);
    upright.lineTo(column + 0.5, high);
  };
  for (let i = firstAbove(frame.run.streams[0].reach, frame.view.from); i < op.length; i++) {
    if (start[i] > frame.view.to) break;
    const lane = frame.lanes[frame.home[op[i]]];
    const y = yOf(frame, lane) + lane.height - 1;
    const x1 = Math.round(xOf(frame, start[i])), x2 = Math.round(xOf(frame, end[i]));
    if (x1 !== column) {
      settle();
      column = x1;
      low = high = before ?? y;
    }
    low = Math.min(low, y);
    high = Math.max(high, y);
    if (x2 > x1) {
      settle();
      level.moveTo(x1, y);
      level.lineTo(x2 + 1, y);
      column = x2;
      low = high = y;
    }
    before = y;
  }
  settle();
  return { level, upright, jumps };
}

// Outlines of what is pointed at and of what it waited for, with a line between the two.
function drawMarks(frame) {
  const { context, run, theme, marked, markedLane, left, plot, height } = frame;
  if (marked < 0) return;
  context.save();
  context.beginPath();
  context.rect(left - 1, AXIS, plot + 2, height - AXIS);
  context.clip();
  context.strokeStyle = theme.ink;
  context.lineWidth = 1.5;
  outline(frame, marked, markedLane);
  const before = run.op.waited[marked];
  if (before >= 0 && frame.home[before] > 0) {
    context.setLineDash([3, 2]);
    const from = frame.lanes[frame.home[before]], to = markedLane;
    outline(frame, before, from);
    line(
      context, xOf(frame, run.op.end[before]), yOf(frame, from) + from.height / 2,
      xOf(frame, run.op.start[marked]), yOf(frame, to) + to.height / 2,
    );
  }
  context.restore();
}

function outline(frame, id, lane) {
  const { context, run } = frame;
  const x = Math.max(xOf(frame, run.op.start[id]), frame.left - 4);
  const right = Math.min(xOf(frame, run.op.end[id]), frame.left + frame.plot + 4);
  context.strokeRect(x, yOf(frame, lane) + 0.5, Math.max(right - x, 2), lane.height - 1);
}

function drawGutter(frame, lanes) {
  const { context, theme, left, height, run } = frame;
  context.fillStyle = theme.page;
  context.fillRect(0, 0, left, height);
  for (const lane of lanes) {
    const y = yOf(frame, lane);
    if (lane.first) {
      context.strokeStyle = theme.line;
      if (lane !== frame.lanes[0]) line(context, 0, y - GAP / 2, frame.left + frame.plot, null);
      context.fillStyle = theme.ink;
      context.font = "600 " + FONT;
      context.textAlign = "left";
      context.fillText(fitted(context, lane.device, frame.deviceWidth), 14, y + ROW / 2 + 0.5);
    }
    context.fillStyle = theme.quiet;
    context.font = FONT;
    context.textAlign = "right";
    context.fillText(fitted(context, lane.name, frame.nameWidth), left - 8, y + ROW / 2 + 0.5);
    if (lane.memory) {
      context.font = SMALL;
      context.fillText(`peak ${sizeText(lane.memory.peak)}`, left - 8, y + ROW * 1.5);
      context.fillText(`of ${sizeText(lane.memory.capacity)}`, left - 8, y + ROW * 2.3);
    }
  }
}

// The text, cut with an ellipsis where it is longer than the room for it.
function fitted(context, text, room) {
  if (context.measureText(text).width <= room) return text;
  let length = text.length;
  while (length > 1 && context.measureText(text.slice(0, length) + "…").width > room) length--;
  return text.slice(0, length) + "…";
}

// Dates of the time axis: their distance leaves room for their words.
function datesOf(frame) {
  const { context, view, rate, run } = frame;
  context.font = FONT;
  const widest = context.measureText(dateText(run.finish, niceStep(90 / rate), run.finish)).width;
  const step = niceStep(Math.max(90, widest + 24) / rate);
  const first = Math.ceil(view.from / step), last = Math.floor(view.to / step + 1e-9);
  const dates = Array.from({ length: last - first + 1 }, (_, i) => (first + i) * step);
  return { dates, step };
}

function drawGrid(frame) {
  const { context, theme, height } = frame;
  context.strokeStyle = theme.line;
  for (const date of datesOf(frame).dates) {
    const x = Math.round(xOf(frame, date)) + 0.5;
    line(context, x, AXIS, x, height);
  }
}

function drawAxis(frame) {
  const { context, theme, width, run } = frame;
  context.fillStyle = theme.page;
  context.fillRect(0, 0, width, AXIS);
  context.strokeStyle = theme.line;
  line(context, 0, AXIS - 1, width, null);
  context.textAlign = "center";
  context.fillStyle = theme.ink;
  const { dates, step } = datesOf(frame);
  for (const date of dates) {
    const x = xOf(frame, date), text = dateText(date, step, run.finish);
    const half = context.measureText(text).width / 2;
    context.fillText(text, Math.min(x, width - half - 2), AXIS / 2 - 1);
    line(context, Math.round(x) + 0.5, AXIS - 5, Math.round(x) + 0.5, AXIS);
  }
}
