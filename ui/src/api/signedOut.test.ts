import { afterEach, expect, test, vi } from "vitest";
import { isSignedOut, mayAsk, noteAnswer, onSignedOutChange } from "./signedOut";

const url = (path: string) => `http://localhost/api/v1/${path}`;

afterEach(() => noteAnswer(200, url("me")));

test("after a refusal only what leads to a session is asked, until /me succeeds", () => {
  const changed = vi.fn();
  const stop = onSignedOutChange(changed);
  noteAnswer(401, url("runs"));
  noteAnswer(401, url("pools"));
  expect(changed).toHaveBeenCalledTimes(1);
  expect(["runs", "tickets", "me", "session"].map((path) => mayAsk(url(path)))).toEqual([false, false, true, true]);
  noteAnswer(429, url("me"));
  noteAnswer(201, url("session"));
  expect(isSignedOut()).toBe(true);
  noteAnswer(200, url("me"));
  expect(isSignedOut()).toBe(false);
  expect(mayAsk(url("runs"))).toBe(true);
  stop();
});

test("a wrong password is no end of a session", () => {
  noteAnswer(401, url("session"));
  expect(isSignedOut()).toBe(false);
});
