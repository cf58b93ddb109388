import { useQuery } from "@tanstack/react-query";
import { client } from "@/api/client";
import type { Schema } from "@/api/types";
import { boundsOf } from "./calendar";

export interface SlotRequest {
  workflow: string;
  /** The schedule, if the workflow has several. */
  key: string | null;
  /** Days; `null` asks for nothing. */
  from: string | null;
  to: string | null;
  isOnlyMissing: boolean;
}

/** The slots of a range of days that a backfill would start, and those that have had a run: a preview, which starts nothing. */
export function useSlots({ workflow, key, from, to, isOnlyMissing }: SlotRequest) {
  return useQuery({
    queryKey: ["get", "/api/v1/backfills/preview", workflow, key, from, to, isOnlyMissing],
    enabled: from !== null && to !== null,
    placeholderData: (previous: Schema<"BackfillPlan"> | undefined) => previous,
    queryFn: async () => {
      const body = {
        workflow,
        key,
        ...boundsOf(from ?? "", to ?? ""),
        preview: true,
        only_missing: isOnlyMissing,
        limit: 1,
      };
      const { data } = await client.POST("/api/v1/backfills", { body });
      return data as Schema<"BackfillPlan">;
    },
  });
}
