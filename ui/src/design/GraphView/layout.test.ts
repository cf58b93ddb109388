import { expect, test } from "vitest";
import { curveThrough, layoutGraph } from "./layout";

const box = (id: string) => ({ id, width: 100, height: 40 });

test("edges lead to the right, and boxes do not overlap", () => {
  const { positions } = layoutGraph(
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
  const started = process.cpuUsage();
  expect(layoutGraph(nodes, edges, "LR").positions.size).toBe(1000);
  expect(process.cpuUsage(started).user / 1e6).toBeLessThan(5);
});

test("a label has room of its own between its nodes, and the edge passes there", () => {
  const edge = { source: "a", target: "b", labelWidth: 80 };
  const { positions, routes } = layoutGraph([box("a"), box("b")], [edge], "LR");
  const [left = Number.NaN, right = Number.NaN] = ["a", "b"].map((id) => positions.get(id)?.x);
  const { label, via } = routes.get("a>b") ?? {};
  expect(label?.x).toBeGreaterThan(left + 100 + 40);
  expect(label?.x).toBeLessThan(right - 40);
  expect(via).toHaveLength(1);
});

test("a curve reaches its points along the direction of the graph", () => {
  const points = [
    { x: 0, y: 0 },
    { x: 10, y: 20 },
  ];
  expect(curveThrough(points, "LR")).toBe("M0,0C5,0 5,20 10,20");
  expect(curveThrough(points, "TB")).toBe("M0,0C0,10 10,10 10,20");
});

test("an edge without a label passes the ranks between its ends straight, and has no detour", () => {
  const edges = [
    { source: "a", target: "b" },
    { source: "b", target: "c" },
    { source: "a", target: "c" },
  ];
  const { positions, routes } = layoutGraph([box("a"), box("b"), box("c")], edges, "LR");
  expect(routes.get("a>b")?.via).toEqual([]);
  const [enters, leaves] = routes.get("a>c")?.via ?? [];
  const between = positions.get("b")?.x ?? Number.NaN;
  expect([enters?.x, leaves?.x]).toEqual([between, between + 100]);
  expect(enters?.y).toBe(leaves?.y);
});
