import { expect, test } from "vitest";
import { plainText, styledPieces } from "./ansi";

const ESC = "\u001b";

test("colours and weights are parts of a text", () => {
  expect(styledPieces(`${ESC}[1;31mfailed${ESC}[0m: ${ESC}[92mok${ESC}[39m.`)).toEqual([
    { text: "failed", style: { isBold: true, color: "red" } },
    { text: ": ", style: null },
    { text: "ok", style: { color: "bright-green" } },
    { text: ".", style: null },
  ]);
});

test("colours of larger palettes become the nearest that can be read on both themes", () => {
  const colorOf = (codes: string) => styledPieces(`${ESC}[${codes}mx`)[0]?.style;
  expect(colorOf("38;5;196")).toEqual({ color: "bright-red" });
  expect(colorOf("38;2;0;100;0")).toEqual({ color: "green" });
  expect(colorOf("48;5;4")).toEqual({ background: "blue" });
  expect(colorOf("38;5;240")).toEqual({ color: "bright-black" });
});

test("what moves the cursor, and links, are left out", () => {
  expect(plainText(`${ESC}[2K${ESC}[1Gdone ${ESC}]8;;https://x${ESC}\\here${ESC}]8;;${ESC}\\`)).toBe("done here");
  expect(plainText("nothing special [0m")).toBe("nothing special [0m");
});

test("progress that overwrites itself keeps its last state", () => {
  expect(plainText("10 %\r55 %\r100 %")).toBe("100 %");
  expect(plainText("10 %\r100 %\r\r\n")).toBe("100 %\n");
  expect(styledPieces(`10 %\r${ESC}[32m100 %${ESC}[0m\r${ESC}[K`)).toEqual([
    { text: "100 %", style: { color: "green" } },
  ]);
});
