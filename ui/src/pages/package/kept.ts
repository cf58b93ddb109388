/** The versions of a package that the registry keeps: what each one is now, and which a rollback can publish. */

import type { Schema } from "@/api/types";

export type KeptVersion = Schema<"PackageVersion">;

export interface Kept extends KeptVersion {
  /** Whether the node that answers has loaded it. */
  loaded: boolean;
  /** Whether a rollback by its version publishes exactly this archive. */
  canReturn: boolean;
}

/** A version that was signed again has two archives: a rollback publishes the later one, which is the first here. */
export function keptOf(versions: KeptVersion[], loaded: string | null | undefined): Kept[] {
  const published = versions.find((one) => one.published)?.version;
  return versions.map((one, index) => {
    const isFirst = versions.findIndex(({ version }) => version === one.version) === index;
    return {
      ...one,
      loaded: isFirst && one.version === loaded,
      canReturn: isFirst && one.version !== published,
    };
  });
}
