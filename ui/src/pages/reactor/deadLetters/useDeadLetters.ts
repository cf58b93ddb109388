import { useState } from "react";
import { client } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { replayInOrder } from "./replayInOrder";
import { textOfAccepted } from "./replayResult";

type DeadLetter = Schema<"DeadLetter">;

/** Replays and deletes dead letters of a reactor, and tells what became of them. */
export function useDeadLetters(reactor: string) {
  const outcome = useOutcome("/api/v1/reactors", "/api/v1/accumulators");
  const [isReplayingAll, setReplayingAll] = useState(false);

  const replayOne = async (letter: DeadLetter): Promise<Schema<"ReplayResult">> => {
    const path = { name: reactor, id: letter.id };
    const { data } = await client.POST("/api/v1/reactors/{name}/dead-letters/{id}/replay", { params: { path } });
    if (data === undefined) throw new Error("the server returned no result");
    return data;
  };
  /** An action returns what became of it, and throws that if it did not do what was asked. */
  const attempt = async (action: () => Promise<string>) => {
    try {
      outcome.succeeded(await action());
    } catch (error) {
      outcome.failed(error);
    }
  };

  const replay = (letter: DeadLetter) => attempt(async () => textOfAccepted(await replayOne(letter)));
  const replayAll = async (letters: DeadLetter[]) => {
    setReplayingAll(true);
    await attempt(() => replayInOrder(letters, replayOne));
    setReplayingAll(false);
  };
  const drop = (letter: DeadLetter) =>
    attempt(async () => {
      const path = { name: reactor, id: letter.id };
      await client.DELETE("/api/v1/reactors/{name}/dead-letters/{id}", { params: { path } });
      return "The dead letter is deleted.";
    });
  return { replay, replayAll, isReplayingAll, drop };
}
