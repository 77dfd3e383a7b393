// Which lines of a text are others in another.

/** More cells than these are not compared: what lies between is shown as replaced. */
const MOST_CELLS = 4_000_000;

/**
 * The lines of `before` and `after`, in order.
 * @returns {{kind: "same"|"gone"|"new", text: string, line: number}[]} `line` is that in `after`, of
 *   one that is gone that in `before`.
 */
export function difference(before, after) {
  const a = before.split("\n"), b = after.split("\n");
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head += 1;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail += 1;
  const same = (from, count) => b.slice(from, from + count).map((text, place) => ({ kind: "same", text, line: from + place + 1 }));
  return [
    ...same(0, head),
    ...between(a.slice(head, a.length - tail), b.slice(head, b.length - tail), head),
    ...same(b.length - tail, tail),
  ];
}

function between(a, b, offset) {
  const gone = (place) => ({ kind: "gone", text: a[place], line: offset + place + 1 });
  const fresh = (place) => ({ kind: "new", text: b[place], line: offset + place + 1 });
  if (a.length * b.length > MOST_CELLS) return [...a.map((_, place) => gone(place)), ...b.map((_, place) => fresh(place))];
  // How long the longest common subsequence of what is left is, from each pair of places on.
  const width = b.length + 1;
  const lengths = new Uint32Array((a.length + 1) * width);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      lengths[i * width + j] = a[i] === b[j]
        ? lengths[(i + 1) * width + j + 1] + 1
        : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1]);
    }
  }
  const lines = [];
  let i = 0, j = 0;
  while (i < a.length || j < b.length) {
    if (i < a.length && j < b.length && a[i] === b[j]) {
      lines.push({ ...fresh(j), kind: "same" });
      i += 1;
      j += 1;
    } else if (j === b.length || (i < a.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1])) {
      lines.push(gone(i));
      i += 1;
    } else {
      lines.push(fresh(j));
      j += 1;
    }
  }
  return lines;
}

/** Only what has changed, with `around` lines before and after; `null` where some are left out. */
export function hunks(lines, around = 3) {
  const near = new Set();
  lines.forEach(({ kind }, place) => {
    if (kind === "same") return;
    for (let each = place - around; each <= place + around; each += 1) near.add(each);
  });
  const shown = [];
  lines.forEach((line, place) => {
    if (near.has(place)) shown.push(line);
    else if (shown.length ? shown.at(-1) !== null : true) shown.push(null);
  });
  return shown;
}
