import { expect, test } from "vitest";
import { replayInOrder } from "./replayInOrder";

test("letters are replayed oldest first, and those that fail again are counted", async () => {
  const seen: string[] = [];
  const replay = async (letter: string) => {
    seen.push(letter);
    const accepted = letter === "new";
    const outcome = accepted ? ("emitted" as const) : ("dead_lettered" as const);
    return { receipt: { accepted, sequence: 1, outcome, reason: null } };
  };
  await expect(replayInOrder(["new", "old"], replay)).rejects.toThrow("1 dead letter processed, 1 failed again.");
  expect(seen).toEqual(["old", "new"]);
});

test("an error says how many letters were replayed before it", async () => {
  const replay = async (letter: number) => {
    if (letter === 1) throw new Error("The server does not answer.");
    return { run: "01ab" };
  };
  await expect(replayInOrder([0, 1, 2, 3], replay)).rejects.toThrow(
    "Replayed 2 of 4 dead letters, then: The server does not answer.",
  );
});
