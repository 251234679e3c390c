"use strict";
// Paints pixels. Bars are painted into a strip for each stream: a pixel takes the colour of the
// phase that covers most of it, as strongly as it is covered. A frame costs one pass over the
// operations in sight, however many of them share a pixel.

const ALONE = 0.6, CROWDED = 0.12; // least strength of a pixel that one operation touches, or many
const FADED = 0.22; // of operations off the critical path while it is shown

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));

// The number that a pixel of this colour is in memory, without its opacity.
function pixelOf(hex) {
  const [red, green, blue] = channels(hex);
  return (blue << 16) | (green << 8) | red;
}

const opaque = (pixel, share) => ((Math.round(255 * share) << 24) | pixel) >>> 0;

function inkOn(hex) {
  const [red, green, blue] = channels(hex);
  return 0.3 * red + 0.59 * green + 0.11 * blue > 140 ? "#111111" : "#ffffff"; // luma, BT.601
}

// Paints one stream into `strip`, one number for each pixel; returns the bars with room for words.
function paintStream(strip, stream, scale, pixels, faded) {
  const { start, end, reach, phase, ops } = stream;
  const count = pixels.length, width = strip.length;
  // by phase, and after those by phase of what is faded: how much of the pixel, how many bars
  const cover = new Float64Array(2 * count), bars = new Uint32Array(2 * count);
  const wide = [];
  let at = -1;
  const settle = () => {
    if (at >= 0 && at < width) strip[at] = blend(cover, bars, pixels);
    cover.fill(0);
    bars.fill(0);
  };
  for (let i = firstAbove(reach, scale.from); i < start.length && start[i] < scale.to; i++) {
    const left = Math.max((start[i] - scale.from) * scale.rate, 0);
    let right = Math.min((end[i] - scale.from) * scale.rate, width);
    if (right - left > scale.labelled) wide.push({ i, left, right });
    if (right - left > scale.parted) right -= scale.gap;
    const key = phase[i] + (faded && faded(ops[i]) ? count : 0);
    const first = Math.floor(left), last = Math.floor(right);
    if (first !== at) { settle(); at = first; }
    cover[key] += Math.min(right, first + 1) - left;
    bars[key]++;
    if (last === first) continue;
    settle();
    strip.fill(opaque(pixels[key % count], key < count ? 1 : FADED), first + 1, last);
    at = last;
    cover[key] += right - last;
    if (right > last) bars[key]++;
  }
  settle();
  return wide;
}

// One pixel: what is not faded comes first, else the phase with the largest part.
function blend(cover, bars, pixels) {
  const count = pixels.length;
  for (const [offset, strength] of [[0, 1], [count, FADED]]) {
    let best = -1, total = 0, many = 0;
    for (let key = offset; key < offset + count; key++) {
      total += cover[key];
      many += bars[key];
      if (bars[key] && (best < 0 || cover[key] > cover[best])) best = key;
    }
    if (best >= 0) {
      const least = Math.max(ALONE / many, CROWDED);
      return opaque(pixels[best - offset], strength * Math.min(Math.max(total, least), 1));
    }
  }
  return 0;
}

// For each pixel the index of the highest point of a memory curve in it; -1 before the first.
function highestPoints(memory, scale, width) {
  const { times, total } = memory;
  const points = new Int32Array(width);
  let next = firstAbove(times, scale.from), held = next - 1;
  for (let x = 0; x < width; x++) {
    const stop = scale.from + (x + 1) / scale.rate;
    let best = held;
    for (; next < times.length && times[next] < stop; next++) {
      if (best < 0 || total[next] > total[best]) best = next;
      held = next;
    }
    points[x] = best;
  }
  return points;
}

// Paints stacked kinds into `image` (rows of `width` pixels); `top` bytes fill its height.
function paintMemory(image, width, height, memory, scale, top, pixels) {
  const points = highestPoints(memory, scale, width);
  for (let x = 0; x < width; x++) {
    if (points[x] < 0) continue;
    let sum = 0, y = height;
    for (const { index, level } of memory.parts) {
      sum += level[points[x]];
      const stop = Math.max(Math.round(height * (1 - sum / top)), 0);
      for (; y > stop; y--) image[(y - 1) * width + x] = opaque(pixels[index], 1);
    }
  }
}

// Devices of one size share a scale: up to the capacity where it is near, else to the peak.
function memoryTop(run, memory) {
  const alike = run.memory.filter((other) => other.capacity === memory.capacity);
  const peak = Math.max(...alike.map((other) => other.peak));
  return peak > 0.3 * memory.capacity ? 1.12 * memory.capacity : 1.12 * peak;
}
