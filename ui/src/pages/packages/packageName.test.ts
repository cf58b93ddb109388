import { expect, it } from "vitest";
import { packageName } from "./packageName";

it("takes the name of a package from its archive", () => {
  expect(packageName("hello-0.1.0.tidemill")).toBe("hello");
  expect(packageName("price-feed-1.2.0.tidemill")).toBe("price-feed");
  expect(packageName("hello.tidemill")).toBe("hello");
});
