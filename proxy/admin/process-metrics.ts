/** What operators see of the process itself. prom-client's own set is not used: its observer of garbage collection can't be ended, and a process may hold several gateways. */
import { readdirSync } from 'node:fs'
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { Gauge, type Registry } from 'prom-client'
import type { Together } from './exposition.ts'

/** Adds `sallyport_process_…`; returns what ends the measuring. */
export function measureProcess(registry: Registry): () => void {
  const registers = [registry]
  const gauge = (name: string, help: string, read: () => number | undefined, together: Together = 'sum'): void => {
    new Gauge({
      name: `sallyport_process_${name}`,
      help,
      registers,
      aggregator: together,
      collect() {
        const value = read()
        if (value !== undefined) this.set(value)
      },
    })
  }
  const delay = monitorEventLoopDelay({ resolution: 20 })
  delay.enable()
  gauge('cpu_seconds', 'CPU time of the process since its start.', () => {
    const { user, system } = process.cpuUsage()
    return (user + system) / 1e6
  })
  gauge('resident_memory_bytes', 'Resident memory.', () => process.memoryUsage.rss())
  gauge('heap_used_bytes', 'Used JavaScript heap.', () => process.memoryUsage().heapUsed)
  gauge(
    'start_time_seconds',
    'Start of the process, since the epoch.',
    () => Date.now() / 1000 - process.uptime(),
    'min',
  )
  gauge('open_fds', 'Open file descriptors.', countDescriptors)
  const longest = () => seconds(delay.max)
  gauge('eventloop_delay_max_seconds', 'Delay of the event loop since the last scrape, the longest.', longest, 'max')
  const usual = () => {
    const value = seconds(delay.percentile(99))
    delay.reset()
    return value
  }
  gauge('eventloop_delay_p99_seconds', 'Delay of the event loop since the last scrape, 99th percentile.', usual, 'max')
  return () => void delay.disable()
}

/** One that has seen nothing yet says so in numbers that are no time. */
function seconds(nanoseconds: number): number {
  return nanoseconds > 0 && nanoseconds < 1e15 ? nanoseconds / 1e9 : 0
}

/** Linux only; elsewhere the gauge stays at zero. */
function countDescriptors(): number | undefined {
  try {
    return readdirSync('/proc/self/fd').length
  } catch {
    return undefined
  }
}
