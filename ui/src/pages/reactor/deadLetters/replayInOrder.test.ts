import { expect, test } from "vitest";
import { replayInOrder } from "./replayInOrder";

test("letters are replayed oldest first, and those that fail again are counted", async () => {
  const seen: string[] = [];
  const text = await replayInOrder(["new", "old"], async (letter) => {
    seen.push(letter);
    const accepted = letter === "new";
    return { receipt: { accepted, sequence: 1, outcome: accepted ? "emitted" : "dead_lettered", reason: null } };
  });
  expect(seen).toEqual(["old", "new"]);
  expect(text).toBe("1 dead letter processed, 1 failed again.");
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
