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
  /** The change has failed, perhaps after a part of it, or because the page was out of date: say so, and read again. */
  failed: (error: unknown) => void;
}

export function useOutcome(...paths: string[]): Outcome {
  const queries = useQueryClient();
  const announce = useToast();
  const readAgain = () =>
    void queries.invalidateQueries({
      predicate: ({ queryKey }) => [AUDIT, ...paths].some((path) => concerns({ path }, queryKey)),
    });
  return {
    succeeded: (text) => {
      announce(text);
      readAgain();
    },
    failed: (error) => {
      announce(messageOf(error), "error");
      readAgain();
    },
  };
}
