/** Names of the schemas of the OpenAPI document: `Schema<"RunInfo">`. */

import type { components } from "./schema";

export type Schemas = components["schemas"];
export type Schema<Name extends keyof Schemas> = Schemas[Name];

export type RunState = Schema<"RunState">;
export type TaskState = Schema<"TaskState">;
export type ReactorHealth = Schema<"ReactorHealth">;
export type AccumulatorHealth = Schema<"AccumulatorHealth">;
