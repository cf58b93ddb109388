import { useQueryClient } from "@tanstack/react-query";
import { api } from "@/api/client";
import { messageOf } from "@/api/problem";
import type { Schema } from "@/api/types";
import { useToast } from "@/design/Toasts/Toasts";
import { formatDuration } from "@/format/duration";

type Command = Schema<"CommandRequest">["command"];
type Result = Schema<"CommandResult">;

/** Gives a reactor a command, and tells what it did. */
export function useReactorCommand(name: string, onDone?: (result: Result) => void) {
  const toast = useToast();
  const queries = useQueryClient();
  const mutation = api.useMutation("post", "/api/v1/reactors/{name}/commands", {
    onSuccess: (result, { body }) => {
      toast(messageFor(name, body.command, result));
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/reactors"] });
      void queries.invalidateQueries({ queryKey: ["get", "/api/v1/reactors/{name}/recoveries"] });
      onDone?.(result);
    },
    onError: (error, { body }) => {
      // A form shows the problems of its fields itself.
      if (body.command !== "fire_with") toast(messageOf(error), "error");
    },
  });
  const give = (command: Command, inputs?: Record<string, unknown>) =>
    mutation.mutate({ params: { path: { name } }, body: { command, inputs: inputs ?? null } });
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
