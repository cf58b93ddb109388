/** What programs write for terminals: colours as parts of a text, and of progress that was overwritten the last state. */

export interface Style {
  /** "red", "bright-red", ...: one of the sixteen colours, which the theme draws. */
  color?: string;
  background?: string;
  isBold?: boolean;
  isFaint?: boolean;
  isItalic?: boolean;
  isUnderlined?: boolean;
}

export interface Piece {
  text: string;
  style: Style | null;
}

const COLORS = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
// biome-ignore lint/suspicious/noControlCharactersInRegex: these are the characters that terminals are controlled with
const SEQUENCE = /\x1b\[([0-9;:]*)[ -/]*([@-~])|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b[@-Z\\-_]/g;
// biome-ignore lint/suspicious/noControlCharactersInRegex: likewise
const CONTROL = /[\x1b\r\b]/;

/** A text without what only a terminal understands. */
export function plainText(text: string): string {
  return CONTROL.test(text) ? withoutProgress(text).replace(SEQUENCE, "") : text;
}

/** A text in parts of one style each. */
export function styledPieces(text: string): Piece[] {
  if (!CONTROL.test(text)) return [{ text, style: null }];
  const shown = withoutProgress(text);
  const pieces: Piece[] = [];
  let style: Style | null = null;
  let from = 0;
  const add = (until: number) => {
    if (until > from) pieces.push({ text: shown.slice(from, until), style });
  };
  for (const match of shown.matchAll(SEQUENCE)) {
    add(match.index);
    from = match.index + match[0].length;
    if (match[2] === "m") style = nextStyle(style, (match[1] ?? "").split(/[;:]/).map(Number));
  }
  add(shown.length);
  return pieces;
}

/** What a terminal shows in the end: each carriage return begins the line again. */
function withoutProgress(text: string): string {
  if (!text.includes("\r")) return text;
  return text
    .split("\n")
    .map((line) => {
      const states = line.replace(/\r+$/, "").split("\r");
      return states.findLast((state) => plainOf(state).trim() !== "") ?? states.at(-1) ?? "";
    })
    .join("\n");
}

function plainOf(text: string): string {
  return text.replace(SEQUENCE, "");
}

function nextStyle(before: Style | null, codes: number[]): Style | null {
  let style: Style = { ...before };
  for (let index = 0; index < codes.length; index++) {
    const code = codes[index] ?? 0;
    if (code === 0) style = {};
    else if (code === 1) style.isBold = true;
    else if (code === 2) style.isFaint = true;
    else if (code === 3) style.isItalic = true;
    else if (code === 4) style.isUnderlined = true;
    else if (code === 22) style = without(style, "isBold", "isFaint");
    else if (code === 23) style = without(style, "isItalic");
    else if (code === 24) style = without(style, "isUnderlined");
    else if (code === 39) style = without(style, "color");
    else if (code === 49) style = without(style, "background");
    else if (code === 38 || code === 48) {
      const found = indexedColor(codes, index);
      index = found.last;
      if (found.color !== undefined) style[code === 38 ? "color" : "background"] = found.color;
    } else {
      const color = basicColor(code % 10, code >= 90);
      if ((code >= 30 && code < 38) || (code >= 90 && code < 98)) style.color = color;
      if ((code >= 40 && code < 48) || (code >= 100 && code < 108)) style.background = color;
    }
  }
  return Object.keys(style).length === 0 ? null : style;
}

function without(style: Style, ...names: (keyof Style)[]): Style {
  return Object.fromEntries(Object.entries(style).filter(([name]) => !names.includes(name as keyof Style)));
}

function basicColor(number: number, isBright: boolean): string {
  return `${isBright ? "bright-" : ""}${COLORS[number] ?? "white"}`;
}

/** One of 256 colours, or of all, as the nearest of the sixteen: these can be read on both themes. */
function indexedColor(codes: number[], at: number): { color?: string; last: number } {
  if (codes[at + 1] === 5) {
    const number = codes[at + 2] ?? 0;
    if (number < 16) return { color: basicColor(number % 8, number >= 8), last: at + 2 };
    if (number >= 232) return { color: number < 244 ? "bright-black" : "white", last: at + 2 };
    const cube = number - 16;
    const level = (value: number) => (value % 6) * 51;
    return { color: nearest(level(Math.floor(cube / 36)), level(Math.floor(cube / 6)), level(cube)), last: at + 2 };
  }
  if (codes[at + 1] !== 2) return { last: at + 1 };
  return { color: nearest(codes[at + 2] ?? 0, codes[at + 3] ?? 0, codes[at + 4] ?? 0), last: at + 4 };
}

function nearest(red: number, green: number, blue: number): string {
  const highest = Math.max(red, green, blue);
  const bit = (value: number) => (value > highest * 0.6 && value > 40 ? 1 : 0);
  return basicColor(bit(red) + 2 * bit(green) + 4 * bit(blue), highest > 200);
}
