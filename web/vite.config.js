import { defineConfig } from "vite";

// The service that `npm run dev` shows.
const service = process.env.LEASEHOLD_SERVICE ?? "http://127.0.0.1:7420";

export default defineConfig({
  build: {
    outDir: "../crates/leasehold-server/dist",
    emptyOutDir: true,
    target: "es2022",
    // One file of code and one of styles: the strict policy of the service allows no inline preloads.
    modulePreload: false,
    cssCodeSplit: false,
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 250,
  },
  server: { proxy: { "/v1": service } },
});
