import react from "@vitejs/plugin-react";
import { defineConfig } from "vite";

// The server sends these files as they are, from `src/infloop/web/console`.
export default defineConfig({
  base: "/",
  plugins: [react()],
  worker: { format: "es" },
  build: {
    outDir: "../src/infloop/web/console",
    emptyOutDir: true,
    assetsInlineLimit: 0,
    sourcemap: false,
    target: "es2022",
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: { proxy: { "/api": "http://127.0.0.1:3000" } },
});
