/** What follows a change: its result as a message, and everything that it made out of date read again. */

import { useQueryClient } from "@tanstack/react-query";
import { useToast } from "@/design/Toasts/Toasts";
import { concerns } from "@/live/outdated";
import { messageOf } from "./problem";

/** Every change is in the audit log. */
const AUDIT = "/api/v1/audit";

export interface Outcome {
  /** The change has happened: say so, and read the answers below the given paths again. */
  succeeded: (text: string) => void;
  failed: (error: unknown) => void;
}

export function useOutcome(...paths: string[]): Outcome {
  const queries = useQueryClient();
  const announce = useToast();
  return {
    succeeded: (text) => {
      announce(text);
      void queries.invalidateQueries({
        predicate: ({ queryKey }) => [AUDIT, ...paths].some((path) => concerns({ path }, queryKey)),
      });
    },
    failed: (error) => announce(messageOf(error), "error"),
  };
}
