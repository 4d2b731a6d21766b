import { defineConfig } from 'vite'

// The build is committed: the same source has to make the same bytes, and nothing may need what the content security policy
// refuses (inline styles, scripts and data: addresses).
export default defineConfig({
  build: {
    outDir: '../dist',
    emptyOutDir: true,
    assetsInlineLimit: 0,
    sourcemap: false,
    modulePreload: { polyfill: false },
    target: 'es2023',
    rolldownOptions: {
      // Libraries mark what is for the browser; here everything is.
      onLog: (level, log, handle) => {
        if (log.code !== 'MODULE_LEVEL_DIRECTIVE') handle(level, log)
      },
    },
  },
  server: {
    proxy: Object.fromEntries(
      ['/graphql', '/session'].map((path) => [path, { target: process.env.LOCKSTEP_CONSOLE ?? 'http://127.0.0.1:8080' }]),
    ),
  },
})
