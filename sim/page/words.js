"use strict";
// Numbers and operations as people read them.

const TIMES = [[1, "s"], [1e-3, "ms"], [1e-6, "µs"], [1e-9, "ns"]];
const THOUSANDS = [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]];

function unitOf(value, units) {
  return units.find(([size]) => value >= size) ?? units[units.length - 1];
}

function three(value) {
  return value >= 100 ? value.toFixed(0) : String(Number(value.toPrecision(3)));
}

function withUnit(value, units, suffix) {
  const [size, unit] = unitOf(value, units);
  return `${three(value / size)} ${unit}${suffix}`;
}

const timeText = (seconds) => (seconds ? withUnit(seconds, TIMES, "") : "0 s");
const sizeText = (count) => withUnit(count, THOUSANDS, "B");
const rateText = (rate) => withUnit(rate, THOUSANDS, "B/s");
const flopText = (count) => withUnit(count, THOUSANDS, "FLOP");
const flopRateText = (rate) => withUnit(rate, THOUSANDS, "FLOP/s");

// A date: as many digits as tell apart what lies `step` seconds apart.
function dateText(seconds, step, finish) {
  const [size, unit] = unitOf(finish, TIMES);
  const digits = Math.min(Math.max(0, Math.ceil(-Math.log10(step / size) - 1e-9)), 12);
  return `${(seconds / size).toFixed(digits)} ${unit}`;
}

const range = (first, last) => (first === last ? `${first}` : `${first}–${last}`);

function actionOf(run, id) {
  return run.actions[run.op.action[id]].replaceAll("_", " ");
}

function layersOf(run, id) {
  return run.op.first[id] < 0 ? "" : range(run.op.first[id], run.op.last[id]);
}

function shortLabelOf(run, id) {
  const tensor = run.op.tensor[id];
  return tensor < 0 ? layersOf(run, id) : run.tensors[tensor];
}

function labelOf(run, id) {
  return `${actionOf(run, id)} ${shortLabelOf(run, id)}`.trim();
}

function placeOf(run, id) {
  const { device, peer, group } = run.op;
  if (group[id] >= 0) return run.groups[group[id]];
  const from = run.devices[device[id]];
  return peer[id] < 0 ? from : `${from} → ${run.devices[peer[id]]}`;
}

// What the hover box says of an operation: pairs of a word and a text.
function factsOf(run, id) {
  const { op } = run;
  const seconds = op.end[id] - op.start[id];
  const rows = [
    ["op", `${id} on ${placeOf(run, id)}`],
    ["time", spanText(op.start[id], op.end[id], run)],
  ];
  const layers = layersOf(run, id);
  if (layers) rows.push([op.first[id] === op.last[id] ? "layer" : "layers", layers]);
  if (op.stop[id] > op.sample[id]) rows.push(["samples", range(op.sample[id], op.stop[id] - 1)]);
  if (op.flop[id]) rows.push(["work", amount(op.flop[id], seconds, flopText, flopRateText)]);
  if (op.bytes[id]) {
    const what = op.computes[id] ? "GPU memory" : "bytes";
    rows.push([what, amount(op.bytes[id], seconds, sizeText, rateText)]);
  }
  return [...rows, ...waitsOf(run, id), ...pathOf(run, id)];
}

function spanText(start, end, run) {
  const step = Math.max((end - start) / 100, run.finish * 1e-9);
  return `${timeText(end - start)}, from ${dateText(start, step, run.finish)}`;
}

function amount(count, seconds, text, rate) {
  return seconds > 0 ? `${text(count)} at ${rate(count / seconds)}` : text(count);
}

function waitsOf(run, id) {
  const { op } = run;
  const before = op.waited[id];
  const whom = before < 0
    ? "nothing"
    : `op ${before}, ${labelOf(run, before)} on ${placeOf(run, before)}`;
  const rows = [["waited for", whom]];
  const idle = op.start[id] - op.ready[id];
  const what = op.tensor[id] < 0 ? "until it started" : "for a copy engine";
  if (idle > 0) rows.push(["then", `${timeText(idle)} ${what}`]);
  return rows;
}

function pathOf(run, id) {
  if (!run.onPath[id]) return [];
  const parts = [];
  run.path.op.forEach((other, i) => {
    if (other === id) {
      const length = timeText(run.path.end[i] - run.path.start[i]);
      parts.push(`${run.resources[run.path.resource[i]]} ${length}`);
    }
  });
  return [["critical path", parts.join(", ")]];
}
