import { api } from "@/api/client";
import type { Schema } from "@/api/types";
import { useOutcome } from "@/api/useOutcome";
import { formatDuration } from "@/format/duration";

type Command = Schema<"CommandReactorRequest">["command"];
type Result = Schema<"CommandResult">;

/** Commands whose dialog shows the refusal of the server itself, as the dialogs that ask for a key do. */
const IN_DIALOG = new Set<Command>(["fire_with", "restart"]);

/** Gives a reactor a command, and tells what it did. */
export function useReactorCommand(name: string, onDone?: (result: Result) => void) {
  const outcome = useOutcome("/api/v1/reactors", "/api/v1/accumulators");
  const mutation = api.useMutation("post", "/api/v1/reactors/{name}/commands", {
    onSuccess: (result, { body }) => {
      outcome.succeeded(messageFor(name, body.command, result));
      onDone?.(result);
    },
    onError: (error, { body }) => {
      if (!IN_DIALOG.has(body.command) && body.key === null) outcome.failed(error);
    },
  });
  const give = (command: Command, inputs: Record<string, unknown> | null = null, key: unknown = null) =>
    mutation.mutate({ params: { path: { name } }, body: { command, inputs, key } });
  return { give, isPending: mutation.isPending, error: mutation.error as unknown };
}

function messageFor(name: string, command: Command, { firing }: Result): string {
  if (firing) return `${name} fired in ${formatDuration(firing.duration)}${firing.ok ? "." : ", and a node failed."}`;
  const texts: Partial<Record<Command, string>> = {
    pause: `${name} is paused.`,
    resume: `${name} fires again.`,
    restart: `${name} was restarted.`,
  };
  return texts[command] ?? `${name}: done.`;
}
