/** Starts the console in its page. */
import { render } from 'preact'
import { Console } from './console.tsx'
import { signInByCertificate } from './session.ts'
import './style.css'
import { applyTheme } from './theme.ts'

applyTheme()
const place = document.getElementById('console')
if (place) render(<Console />, place)
void signInByCertificate()
