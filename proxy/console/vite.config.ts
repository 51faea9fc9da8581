/** How the console is built: one script and one style sheet, loaded from where the page came from and from nowhere else. */
import { defineConfig } from 'vite'

export default defineConfig({
  // The page is served below a path that it need not know.
  base: './',
  logLevel: 'warn',
  build: {
    target: 'es2023',
    // Nothing may be inlined: the policy of the page forbids `data:` and inline styles.
    assetsInlineLimit: 0,
    modulePreload: false,
    cssCodeSplit: false,
    reportCompressedSize: false,
  },
})
