/** Replays many dead letters, one after the other. */

import { messageOf } from "@/api/problem";
import type { Schema } from "@/api/types";
import { plural } from "@/format/number";
import { isAccepted } from "./replayResult";

/** Replays letters oldest first, as they happened, and says what became of them; an error says how far it came. */
export async function replayInOrder<Letter>(
  letters: Letter[],
  replay: (letter: Letter) => Promise<Schema<"ReplayResult">>,
): Promise<string> {
  let [replayed, accepted] = [0, 0];
  for (const letter of letters.toReversed()) {
    try {
      if (isAccepted(await replay(letter))) accepted += 1;
      replayed += 1;
    } catch (error) {
      throw new Error(`Replayed ${replayed} of ${plural(letters.length, "dead letter")}, then: ${messageOf(error)}`);
    }
  }
  const failed = replayed - accepted;
  const processed = `${plural(accepted, "dead letter")} processed`;
  if (failed > 0) throw new Error(`${processed}, ${failed} failed again.`);
  return `${processed}.`;
}
