/** Problem details of a request that failed (RFC 9457), as an error. */

import type { Schema } from "./types";

export class Problem extends Error {
  readonly status: number;
  readonly code: string;
  readonly requestId: string | null;
  readonly suggestions: string[];
  readonly fields: { path: string; message: string }[];

  constructor(details: Partial<Schema<"ProblemDetails">> & { status: number }) {
    super(details.detail ?? details.title ?? `The server answered with status ${details.status}.`);
    this.name = "Problem";
    this.status = details.status;
    this.code = details.code ?? "unknown";
    this.requestId = details.request_id ?? null;
    this.suggestions = details.suggestions ?? [];
    this.fields = details.errors ?? [];
  }

  static async from(response: Response): Promise<Problem> {
    const body: unknown = await response.json().catch(() => null);
    return new Problem({ ...(body as object | null), status: response.status });
  }

  static unreachable(): Problem {
    return new Problem({ status: 0, code: "unreachable", detail: "The server does not answer." });
  }

  static signedOut(): Problem {
    return new Problem({ status: 401, code: "signed_out", detail: "The session has ended: sign in again." });
  }

  /** Whether the same request may succeed later without a change. */
  get isTransient(): boolean {
    return this.status === 0 || this.status === 429 || this.status >= 502;
  }
}

/** What to tell people about any error. */
export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
