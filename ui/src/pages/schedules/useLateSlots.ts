import { api } from "@/api/client";

/** The number of late slots by workflow and schedule, as on Home; read only if a page asks for it. */
export function useLateSlots(isWanted: boolean) {
  return api.useQuery(
    "get",
    "/api/v1/overview",
    {},
    {
      enabled: isWanted,
      // Time alone makes a slot late: it leaves no event.
      refetchInterval: 15_000,
      select: ({ late }) =>
        new Map(late.slots.map(({ workflow, key, slots }) => [scheduleKey({ workflow, key }), slots])),
    },
  );
}

/** What identifies a schedule: a workflow may have several. */
export function scheduleKey({ workflow, key }: { workflow: string; key: string }): string {
  return `${workflow} ${key}`;
}
