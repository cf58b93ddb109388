/** The difference of two texts, line by line (Myers: the fewest lines added and removed). */

export interface DiffLine {
  kind: "same" | "removed" | "added";
  text: string;
  /** Line numbers from 1 on; `null` where the text has no such line. */
  before: number | null;
  after: number | null;
}

export function diffLines(before: string, after: string): DiffLine[] {
  const [old, young] = [linesOf(before), linesOf(after)];
  const lines: DiffLine[] = [];
  let [x, y] = [0, 0];
  const same = () => lines.push({ kind: "same", text: old[x] ?? "", before: ++x, after: ++y });
  for (const step of shortestEdit(old, young)) {
    while (x < step.x && y < step.y) same();
    if (step.kind === "removed") lines.push({ kind: "removed", text: old[x] ?? "", before: ++x, after: null });
    else lines.push({ kind: "added", text: young[y] ?? "", before: null, after: ++y });
  }
  while (x < old.length) same();
  return lines;
}

function linesOf(text: string): string[] {
  return text === "" ? [] : text.replace(/\n$/, "").split("\n");
}

/** A line that is removed or added at a position of both texts. */
interface Edit {
  kind: "removed" | "added";
  x: number;
  y: number;
}

/** More edits than this are not searched for: memory grows with their square. */
const MOST_EDITS = 1000;

/** The edits in order. `furthest[k]` is how far one gets on diagonal k with d edits; the trace remembers it for each d. */
function shortestEdit(old: string[], young: string[]): Edit[] {
  const trace: Map<number, number>[] = [];
  let furthest = new Map<number, number>([[1, 0]]);
  for (let d = 0; d <= Math.min(MOST_EDITS, old.length + young.length); d++) {
    trace.push(furthest);
    furthest = new Map(furthest);
    for (let k = -d; k <= d; k += 2) {
      let x = isDown(furthest, k, d) ? (furthest.get(k + 1) ?? 0) : (furthest.get(k - 1) ?? 0) + 1;
      while (x < old.length && x - k < young.length && old[x] === young[x - k]) x++;
      furthest.set(k, x);
      if (x >= old.length && x - k >= young.length) return walkBack(trace, old.length, young.length);
    }
  }
  return replaceBlock(old, young);
}

/** Everything between the lines that both texts begin and end with, removed and added as a whole. */
function replaceBlock(old: string[], young: string[]): Edit[] {
  let [start, oldEnd, youngEnd] = [0, old.length, young.length];
  while (start < oldEnd && start < youngEnd && old[start] === young[start]) start++;
  while (oldEnd > start && youngEnd > start && old[oldEnd - 1] === young[youngEnd - 1]) {
    oldEnd--;
    youngEnd--;
  }
  const edits: Edit[] = [];
  for (let x = start; x < oldEnd; x++) edits.push({ kind: "removed", x, y: start });
  for (let y = start; y < youngEnd; y++) edits.push({ kind: "added", x: oldEnd, y });
  return edits;
}

function isDown(furthest: Map<number, number>, k: number, d: number): boolean {
  return k === -d || (k !== d && (furthest.get(k - 1) ?? 0) < (furthest.get(k + 1) ?? 0));
}

function walkBack(trace: Map<number, number>[], endX: number, endY: number): Edit[] {
  const edits: Edit[] = [];
  let [x, y] = [endX, endY];
  for (let d = trace.length - 1; d > 0; d--) {
    const furthest = trace[d] as Map<number, number>;
    const k = x - y;
    const down = isDown(furthest, k, d);
    const fromK = down ? k + 1 : k - 1;
    const fromX = furthest.get(fromK) ?? 0;
    const fromY = fromX - fromK;
    edits.push({ kind: down ? "added" : "removed", x: fromX, y: fromY });
    [x, y] = [fromX, fromY];
  }
  return edits.reverse();
}

export type DiffPart = DiffLine | { kind: "gap"; count: number; at: number };

/** Leaves out equal lines that are further than `context` lines from a change. */
export function foldSame(lines: DiffLine[], context = 4): DiffPart[] {
  const isNear = lines.map(() => false);
  lines.forEach((line, index) => {
    if (line.kind === "same") return;
    for (let near = Math.max(0, index - context); near <= index + context && near < lines.length; near++)
      isNear[near] = true;
  });
  const parts: DiffPart[] = [];
  lines.forEach((line, index) => {
    const last = parts.at(-1);
    if (isNear[index]) parts.push(line);
    else if (last?.kind === "gap") last.count++;
    else parts.push({ kind: "gap", count: 1, at: index });
  });
  return parts;
}
