"use strict";
// Finds operations by number or layer.

function parseQuery(text) {
  const layer = /^\s*(?:layers?|l)\s*(\d+)\s*$/i.exec(text);
  if (layer) return { layer: Number(layer[1]) };
  const op = /^\s*(?:op|#)?\s*(\d+)\s*$/i.exec(text);
  return op ? { op: Number(op[1]) } : null;
}

// Ids of the operations that are shown and fit the query, in order of time.
function matchesOf(run, home, query) {
  const { first, last, start } = run.op;
  const fits = "op" in query
    ? (id) => id === query.op
    : (id) => first[id] <= query.layer && query.layer <= last[id];
  const found = [];
  for (let id = 0; id < home.length; id++) if (home[id] > 0 && fits(id)) found.push(id);
  return found.sort((a, b) => start[a] - start[b] || a - b);
}

// A view with this operation in its middle: as wide as now, unless it would be a speck or too wide.
function viewOf(run, view, id) {
  const start = run.op.start[id], length = run.op.end[id] - start;
  const span = Math.min(view.to - view.from, Math.max(20 * length, run.finish * 1e-6));
  const wide = Math.min(Math.max(span, 1.5 * length), run.finish);
  return moved(start + length / 2 - wide / 2, wide, run.finish);
}
