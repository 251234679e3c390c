"use strict";
// From the packed text (see sim/columns.py) to one object that all other files read.

const TYPES = { u1: Uint8Array, i2: Int16Array, i4: Int32Array, f8: Float64Array };
const WAITING = "copy engine"; // resource of a stretch of the path that only waits for one

function bytesOf(base64) {
  const text = atob(base64);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return bytes;
}

function inflate(bytes) {
  const plain = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(plain).arrayBuffer();
}

async function unpack(base64) {
  const buffer = await inflate(bytesOf(base64));
  const bytes = new Uint8Array(buffer);
  const stop = bytes.indexOf(10);
  const { columns, ...facts } = JSON.parse(new TextDecoder().decode(bytes.subarray(0, stop)));
  const column = (name) => {
    const [type, at, length] = columns[name];
    return new TYPES[type](buffer, stop + 1 + at, length);
  };
  return { facts, column, has: (name) => name in columns };
}

function readRun({ facts, column, has }) {
  const op = Object.fromEntries(
    ["action", "phase", "computes", "device", "peer", "group", "tensor", "first", "last", "sample",
      "stop", "flop", "bytes", "ready", "start", "end", "waited",
    ].map((name) => [name, column(name)]),
  );
  const path = Object.fromEntries(
    ["op", "start", "end", "resource"].map((name) => [name, column("path." + name)]),
  );
  const streams = facts.streams.map(([device, name], i) =>
    readStream(device, name, column("stream." + i), op));
  const memory = facts.memory.map(([device, capacity, peak], i) =>
    readMemory(device, capacity, peak, facts.kinds, (kind) => `memory.${i}.${kind}`, column, has));
  const onPath = new Uint8Array(op.start.length);
  for (const id of path.op) onPath[id] = 1;
  const finish = facts.finish || 1; // of a run without time: something to divide by
  streams.unshift(pathStream(path, op, facts));
  return { ...facts, finish, op, path, streams, memory, onPath };
}

function readStream(device, name, ops, op) {
  const pick = (values) => Float64Array.from(ops, (id) => values[id]);
  const end = pick(op.end);
  const phase = Int16Array.from(ops, (id) => op.phase[id]);
  return { device, name, ops, phase, start: pick(op.start), end, reach: highestSoFar(end) };
}

// The critical path as a stream of its own; what waits has the colour after those of the phases.
function pathStream(path, op, facts) {
  const waiting = facts.resources.indexOf(WAITING);
  const phase = Int16Array.from(path.op, (id, i) =>
    path.resource[i] === waiting ? facts.phases.length : op.phase[id]);
  const { op: ops, start, end } = path;
  return { device: "", name: "critical path", ops, phase, start, end, reach: highestSoFar(end) };
}

function readMemory(device, capacity, peak, kinds, nameOf, column, has) {
  const times = column(nameOf("times"));
  const total = new Float64Array(times.length);
  const parts = [];
  kinds.forEach(([kind], index) => {
    if (!has(nameOf(kind))) return;
    const level = running(column(nameOf(kind)));
    for (let i = 0; i < level.length; i++) total[i] += level[i];
    parts.push({ index, level });
  });
  return { device, capacity, peak, times, total, parts };
}

function running(changes) {
  let sum = 0;
  return Float64Array.from(changes, (change) => (sum += change));
}

function highestSoFar(values) {
  let highest = -Infinity;
  return Float64Array.from(values, (value) => (highest = Math.max(highest, value)));
}

// First index whose value is above the limit, in values that never fall.
function firstAbove(values, limit) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] > limit) high = middle; else low = middle + 1;
  }
  return low;
}
