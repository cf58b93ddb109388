import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import react from "@vitejs/plugin-react";
import { defineConfig, type Plugin } from "vite";

const OUTPUT = "../src/tidemill/server/static/ui";
const SERVER = process.env.TIDEMILL_SERVER ?? "http://127.0.0.1:8080";

/** Writes a `.gz` beside each file, so that the server compresses nothing while it serves. */
function precompress(): Plugin {
  return {
    name: "precompress",
    apply: "build",
    closeBundle() {
      for (const entry of readdirSync(OUTPUT, { recursive: true, withFileTypes: true })) {
        if (!entry.isFile() || !/\.(js|css|html|svg)$/.test(entry.name)) continue;
        const path = join(entry.parentPath, entry.name);
        writeFileSync(`${path}.gz`, gzipSync(readFileSync(path), { level: 9 }));
      }
    },
  };
}

/** The licence of the font goes where the font goes. */
function licences(): Plugin {
  return {
    name: "licences",
    apply: "build",
    generateBundle() {
      const source = readFileSync("node_modules/@fontsource-variable/inter/LICENSE");
      this.emitFile({ type: "asset", fileName: "licences/inter.txt", source });
    },
  };
}

export default defineConfig({
  plugins: [react(), licences(), precompress()],
  resolve: { alias: { "@": new URL("./src", import.meta.url).pathname } },
  // Scripts and styles find their files next to them: the pages may be mounted below a path.
  experimental: { renderBuiltUrl: (_, { hostType }) => (hostType === "html" ? undefined : { relative: true }) },
  build: { outDir: OUTPUT, emptyOutDir: true, target: "es2022", sourcemap: false, assetsInlineLimit: 0 },
  server: { proxy: { "/api": SERVER, "/docs": SERVER, "/ws": { target: SERVER, ws: true } } },
});
