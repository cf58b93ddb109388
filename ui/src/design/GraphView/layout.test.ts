import { expect, test } from "vitest";
import { layoutGraph } from "./layout";

const box = (id: string) => ({ id, width: 100, height: 40 });

test("edges lead to the right, and boxes do not overlap", () => {
  const positions = layoutGraph(
    [box("a"), box("b"), box("c")],
    [
      { source: "a", target: "c" },
      { source: "b", target: "c" },
    ],
    "LR",
  );
  const at = (id: string) => positions.get(id) ?? { x: Number.NaN, y: Number.NaN };
  expect(at("c").x).toBeGreaterThanOrEqual(at("a").x + 100);
  expect(Math.abs(at("a").y - at("b").y)).toBeGreaterThanOrEqual(40);
});

test("a thousand nodes are laid out in a moment", () => {
  const nodes = Array.from({ length: 1000 }, (_, index) => box(String(index)));
  const edges = nodes.slice(10).map(({ id }) => ({ source: String(Number(id) - 10), target: id }));
  const started = performance.now();
  expect(layoutGraph(nodes, edges, "LR").size).toBe(1000);
  expect(performance.now() - started).toBeLessThan(5000);
});
