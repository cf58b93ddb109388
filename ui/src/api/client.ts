/** The typed client of the API: every path, parameter and answer comes from the OpenAPI document. */

import createFetchClient, { type Middleware } from "openapi-fetch";
import createQueryClient from "openapi-react-query";
import { Problem } from "./problem";
import { ROOT } from "./root";
import type { paths } from "./schema";
import { mayAsk, noteAnswer } from "./signedOut";
import { actingTenant, TENANT_HEADER } from "./tenant";

const headers: Middleware = {
  onRequest({ request }) {
    if (!mayAsk(request.url)) throw Problem.signedOut();
    request.headers.set("x-requested-with", "tidemill-ui");
    const tenant = actingTenant();
    if (tenant !== null && !request.headers.has(TENANT_HEADER)) request.headers.set(TENANT_HEADER, tenant);
    return request;
  },
  async onResponse({ request, response }) {
    noteAnswer(response.status, request.url);
    if (!response.ok) throw await Problem.from(response);
    return undefined;
  },
  onError() {
    return Problem.unreachable();
  },
};

export const client = createFetchClient<paths>({ baseUrl: `${ROOT}/`, credentials: "same-origin" });
client.use(headers);

/** Hooks of TanStack Query, one per method: `api.useQuery("get", "/api/v1/runs", { params })`. */
export const api = createQueryClient(client);
