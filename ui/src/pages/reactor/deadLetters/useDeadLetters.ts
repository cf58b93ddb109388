import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { client } from "@/api/client";
import { messageOf } from "@/api/problem";
import type { Schema } from "@/api/types";
import { useToast } from "@/design/Toasts/Toasts";
import { plural } from "@/format/number";
import { isAccepted, resultText } from "./replayResult";

type DeadLetter = Schema<"DeadLetter">;

/** Replays and deletes dead letters of a reactor, and tells what became of them. */
export function useDeadLetters(reactor: string) {
  const toast = useToast();
  const queries = useQueryClient();
  const [isReplayingAll, setReplayingAll] = useState(false);
  const refresh = () =>
    queries.invalidateQueries({ queryKey: ["get", "/api/v1/reactors/{name}/dead-letters"], exact: false });

  const replayOne = async (letter: DeadLetter): Promise<Schema<"ReplayResult">> => {
    const path = { name: reactor, id: letter.id };
    const { data } = await client.POST("/api/v1/reactors/{name}/dead-letters/{id}/replay", { params: { path } });
    if (data === undefined) throw new Error("the server returned no result");
    return data;
  };
  const attempt = async (action: () => Promise<string>) => {
    try {
      toast(await action());
    } catch (error) {
      toast(messageOf(error), "error");
    } finally {
      await refresh();
    }
  };

  const replay = (letter: DeadLetter) => attempt(async () => resultText(await replayOne(letter)));
  const replayAll = async (letters: DeadLetter[]) => {
    setReplayingAll(true);
    await attempt(async () => {
      let accepted = 0;
      // Oldest first, as they happened.
      for (const letter of letters.toReversed()) if (isAccepted(await replayOne(letter))) accepted += 1;
      const failed = letters.length - accepted;
      return `${plural(accepted, "dead letter")} processed${failed > 0 ? `, ${failed} failed again` : ""}.`;
    });
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
