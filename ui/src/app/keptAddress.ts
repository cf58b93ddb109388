/** The page that was asked for, kept while the browser signs in at an issuer. */

import { ROOT } from "@/api/root";

const KEY = "tidemill.address";

export function keepAddress(): void {
  sessionStorage.setItem(KEY, location.pathname.slice(ROOT.length) + location.search);
}

/** The address that was kept, once. */
export function takeKeptAddress(): string | null {
  const address = sessionStorage.getItem(KEY);
  sessionStorage.removeItem(KEY);
  return address;
}
