const tag = globalThis.document?.querySelector<HTMLMetaElement>('meta[name="tidemill-root"]'); // unit tests have no page

/** The path below which the pages are served: empty, unless the server is mounted in another application. */
export const ROOT = tag?.content ?? "";
