/** Makes `deploy/observability/grafana-dashboard.json`: rows of panels, each a question of an operator with the query that answers it. */

/** One line of a panel. */
type Query = readonly [expression: string, legend: string]

interface Panel {
  readonly kind: 'stat' | 'timeseries' | 'heatmap' | 'table'
  readonly title: string
  /** What it tells, and what to do about it. */
  readonly about: string
  /** Of Grafana: `reqps`, `s`, `Bps`, … */
  readonly unit: string
  readonly queries: readonly Query[]
  /** Of the 24 columns. */
  readonly width: number
  readonly isStacked?: boolean
}

const DATASOURCE = { type: 'prometheus', uid: '${datasource}' }
const HERE = 'job=~"$job",instance=~"$instance"'
const STAT_HEIGHT = 4
const PANEL_HEIGHT = 8

/** The whole dashboard, as Grafana (10 and later) imports it. */
export function grafanaDashboard(): object {
  return {
    title: 'Sallyport',
    uid: 'sallyport',
    description: 'An egress gateway: what it lets out and refuses, how long that takes, and whether it can be proven.',
    tags: ['sallyport'],
    schemaVersion: 39,
    version: 1,
    editable: true,
    graphTooltip: 1,
    refresh: '30s',
    time: { from: 'now-6h', to: 'now' },
    timezone: '',
    templating: { list: [datasourceVariable(), labelVariable('job'), labelVariable('instance', 'job=~"$job"')] },
    annotations: { list: [] },
    panels: layOut(ROWS),
  }
}

const rate = (name: string, labels = ''): string =>
  `rate(sallyport_${name}{${HERE}${labels && `,${labels}`}}[$__rate_interval])`
const now = (name: string): string => `sallyport_${name}{${HERE}}`
const quantile = (share: number, name: string, by = ''): string =>
  `histogram_quantile(${share}, sum by (le${by && `, ${by}`}) (${rate(`${name}_bucket`)}))`
const refusals = (reasons: string): string =>
  `sum by (reason) (${rate('connections_total', `decision="deny",reason=~"${reasons}"`)})`

const ROWS: readonly (readonly [title: string, panels: readonly Panel[]])[] = [
  [
    'Overview',
    [
      stat('Gateways ready', 'Of those that are scraped.', 'short', [[`sum(${now('ready')})`, '']]),
      stat('Open tunnels', 'Now.', 'short', [[`sum(${now('active_tunnels')})`, '']]),
      stat('Decisions', 'Requests to go out, let out or not.', 'reqps', [[`sum(${rate('connections_total')})`, '']]),
      stat('Refused', 'Share of all decisions.', 'percentunit', [
        [`sum(${rate('connections_total', 'decision="deny"')}) / sum(${rate('connections_total')})`, ''],
      ]),
      stat('Audit log unwritable for', 'While it is, gateways refuse all that is new.', 's', [
        [`max(${now('audit_unwritable_seconds')})`, ''],
      ]),
      stat('Sink furthest behind', 'Age of the oldest line that waits for one.', 's', [
        [`max(${now('audit_sink_lag_seconds')})`, ''],
      ]),
      graph('Decisions', 'By what happened.', 'reqps', [
        [`sum by (decision) (${rate('connections_total')})`, '{{decision}}'],
      ]),
      graph('Bytes', 'Relayed; in is origin to client.', 'Bps', [
        [`sum by (direction) (${rate('bytes_total')})`, '{{direction}}'],
      ]),
      graph('Open tunnels', 'By gateway.', 'short', [[now('active_tunnels'), '{{instance}}']]),
      graph(
        'Ends of tunnels',
        'A wave of `policy_changed` or `token_revoked` is somebody’s decision; one of `error` is a fault.',
        'reqps',
        [[`sum by (close_reason) (${rate('tunnel_closes_total')})`, '{{close_reason}}']],
        true,
      ),
      table('Policies in force', 'More than one version for long: a gateway did not reload.', [
        [`count by (version) (${now('policy_info')})`, ''],
      ]),
      table('What runs', 'Versions of the gateway and of Node.js.', [
        [`count by (version, node) (${now('build_info')})`, ''],
      ]),
    ],
  ],
  [
    'Refusals',
    [
      graph(
        'By policy',
        'A host that a task needs, or one that it should not ask for: the audit log says which.',
        'reqps',
        [[refusals('host_.*|port_not_allowed|address_.*'), '{{reason}}']],
        true,
      ),
      graph(
        'Credentials',
        '`token_missing` alone is how clients begin that send credentials when asked.',
        'reqps',
        [[refusals('token_.*'), '{{reason}}']],
        true,
      ),
      graph(
        'Malformed',
        'What could not be read strictly.',
        'reqps',
        [[refusals('.*_malformed|method_not_allowed|scheme_not_supported|head_too_large'), '{{reason}}']],
        true,
      ),
      graph(
        'By the gateway itself',
        'It is full, stopping, without a policy, or can not write down.',
        'reqps',
        [[refusals('gateway_busy|draining|policy_unavailable|audit_unavailable'), '{{reason}}']],
        true,
      ),
      graph(
        'Destinations that fail',
        'Policy let these out, and the far end or DNS failed.',
        'reqps',
        [[`sum by (reason) (${rate('connections_total', 'reason=~"dns_.*|connect_.*"')})`, '{{reason}}']],
        true,
      ),
      graph('Files of policies', 'Those that can not be used, and whether all of them are out of reach.', 'short', [
        [now('policy_file_faults'), '{{instance}} faults'],
        [now('policy_files_stale'), '{{instance}} out of reach'],
      ]),
      graph(
        'Refused, by dialect',
        'How the clients speak.',
        'reqps',
        [[`sum by (dialect) (${rate('connections_total', 'decision="deny"')})`, '{{dialect}}']],
        true,
      ),
    ],
  ],
  [
    'Latency',
    [
      graph(
        'Set-up',
        'From a whole request to its line in the audit log; what a client waits for beside the network.',
        's',
        [
          [quantile(0.5, 'setup_seconds'), 'p50'],
          [quantile(0.95, 'setup_seconds'), 'p95'],
          [quantile(0.99, 'setup_seconds'), 'p99'],
        ],
      ),
      graph(
        'Its parts, p99',
        'Which step is slow: `dns` and `connect` are the network’s, `identity` and `policy` the gateway’s.',
        's',
        [[quantile(0.99, 'setup_step_seconds', 'step'), '{{step}}']],
      ),
      {
        kind: 'heatmap',
        title: 'Set-up, all of it',
        about: 'How the times are spread.',
        unit: 's',
        width: 12,
        queries: [[`sum by (le) (${rate('setup_seconds_bucket')})`, '{{le}}']],
      },
      graph(
        'Found in a cache',
        'Tokens that are not remembered are verified anew; many of them are many new tokens, or an attack.',
        'percentunit',
        [
          [
            `sum by (cache) (${rate('cache_lookups_total', 'result="hit"')}) / sum by (cache) (${rate('cache_lookups_total')})`,
            '{{cache}}',
          ],
        ],
      ),
      graph('Looks at issuers’ keys', 'While they fail the last keys count, for a day.', 'reqps', [
        [`sum by (result) (${rate('jwks_refresh_total')})`, '{{result}}'],
      ]),
      graph('Life of tunnels', 'How long they were open.', 's', [
        [quantile(0.5, 'tunnel_duration_seconds'), 'p50'],
        [quantile(0.99, 'tunnel_duration_seconds'), 'p99'],
      ]),
    ],
  ],
  [
    'Audit',
    [
      graph('Lines', 'Written by callers.', 'reqps', [
        [`sum by (instance) (${rate('audit_lines_total')})`, '{{instance}}'],
      ]),
      graph('Wait for the file', 'From a line to its place in the file. A client waits for that.', 's', [
        [quantile(0.5, 'audit_write_seconds'), 'p50'],
        [quantile(0.99, 'audit_write_seconds'), 'p99'],
      ]),
      graph('Refused for the log, and lost', 'Neither should ever be seen.', 'reqps', [
        [`sum(${rate('connections_total', 'reason="audit_unavailable"')})`, 'refused'],
        [`sum(${rate('audit_lost_total')})`, 'lost'],
      ]),
      graph('Sinks: behind by', 'Age of the oldest line that waits.', 's', [
        [`max by (sink) (${now('audit_sink_lag_seconds')})`, '{{sink}}'],
      ]),
      graph('Sinks: lines that wait', 'They are in the files; nothing is lost.', 'short', [
        [`sum by (sink) (${now('audit_sink_lag_records')})`, '{{sink}}'],
      ]),
      graph('Sinks: taken', 'Lines a second.', 'reqps', [
        [`sum by (sink) (${rate('audit_sink_delivered_records')})`, '{{sink}}'],
      ]),
      graph(
        'Sinks: faults',
        'Attempts that failed, lines refused for good, lines that were gone before they were taken.',
        'reqps',
        [
          [`sum by (sink) (${rate('audit_sink_failures')})`, '{{sink}} failures'],
          [`sum by (sink) (${rate('audit_sink_refused_records')})`, '{{sink}} refused'],
          [`sum by (sink) (${rate('audit_sink_missing_records')})`, '{{sink}} missing'],
        ],
      ),
      graph('Spans of traces', 'Where tracing is configured.', 'reqps', [
        [`sum by (result) (${rate('trace_spans_total')})`, '{{result}}'],
      ]),
    ],
  ],
  [
    'Limits and process',
    [
      graph(
        'Used of the tunnels that may be open',
        '`limits.tunnels`; at 100% new ones get `gateway_busy`.',
        'percentunit',
        [[`${now('active_tunnels')} / ${now('tunnel_limit')}`, '{{instance}}']],
      ),
      graph(
        'Refused by limits',
        'Of one sandbox or tenant, but `gateway_busy`.',
        'reqps',
        [[refusals('tunnel_limit|rate_limit|byte_quota|gateway_busy'), '{{reason}}']],
        true,
      ),
      graph('Delay of the event loop', 'A quiet process shows the resolution, 20 ms. A cut is late by so much.', 's', [
        [now('process_eventloop_delay_p99_seconds'), '{{instance}} p99'],
        [now('process_eventloop_delay_max_seconds'), '{{instance}} longest'],
      ]),
      graph('Processor', 'Cores; one gateway uses little more than one.', 'short', [
        [`rate(sallyport_process_cpu_seconds{${HERE}}[$__rate_interval])`, '{{instance}}'],
      ]),
      graph('Memory', 'Resident, and the heap in it.', 'bytes', [
        [now('process_resident_memory_bytes'), '{{instance}}'],
        [now('process_heap_used_bytes'), '{{instance}} heap'],
      ]),
      graph('Descriptors', 'Two for each tunnel.', 'short', [[now('process_open_fds'), '{{instance}}']]),
      graph('Since the start', 'A saw is a gateway that does not stay up.', 's', [
        [`time() - ${now('process_start_time_seconds')}`, '{{instance}}'],
      ]),
      graph(
        'Connections without a byte, and turned away',
        'Health checks and port scans; addresses of which too much came to nothing.',
        'reqps',
        [
          [`sum by (instance) (${rate('empty_connections_total')})`, '{{instance}} without a byte'],
          [`sum by (instance) (${rate('turned_away_connections_total')})`, '{{instance}} turned away'],
        ],
      ),
    ],
  ],
]

function stat(title: string, about: string, unit: string, queries: readonly Query[]): Panel {
  return { kind: 'stat', title, about, unit, queries, width: 4 }
}

function graph(title: string, about: string, unit: string, queries: readonly Query[], isStacked = false): Panel {
  return { kind: 'timeseries', title, about, unit, queries, width: 12, isStacked }
}

function table(title: string, about: string, queries: readonly Query[]): Panel {
  return { kind: 'table', title, about, unit: 'short', queries, width: 12 }
}

/** Rows from top to bottom, panels from left to right. */
function layOut(rows: typeof ROWS): object[] {
  const panels: object[] = []
  let y = 0
  for (const [title, content] of rows) {
    panels.push({
      type: 'row',
      id: panels.length + 1,
      title,
      collapsed: false,
      panels: [],
      gridPos: { x: 0, y, w: 24, h: 1 },
    })
    y += 1
    let x = 0
    let rowHeight = 0
    for (const panel of content) {
      if (x + panel.width > 24) {
        x = 0
        y += rowHeight
        rowHeight = 0
      }
      const height = panel.kind === 'stat' ? STAT_HEIGHT : PANEL_HEIGHT
      panels.push({ id: panels.length + 1, ...render(panel), gridPos: { x, y, w: panel.width, h: height } })
      x += panel.width
      rowHeight = Math.max(rowHeight, height)
    }
    y += rowHeight
  }
  return panels
}

function render({ kind, title, about, unit, queries, isStacked = false }: Panel): object {
  const custom = {
    ...(kind === 'timeseries' && { fillOpacity: 10, showPoints: 'never' }),
    ...(isStacked && { fillOpacity: 40, stacking: { mode: 'normal', group: 'A' } }),
  }
  return {
    type: kind,
    title,
    description: about,
    datasource: DATASOURCE,
    fieldConfig: { defaults: { unit, min: 0, custom }, overrides: [] },
    options: optionsOf(kind),
    targets: queries.map(([expr, legendFormat], index) => ({
      refId: String.fromCharCode(65 + index),
      datasource: DATASOURCE,
      expr,
      legendFormat,
      ...(kind === 'table' && { instant: true, format: 'table' }),
      ...(kind === 'heatmap' && { format: 'heatmap' }),
    })),
  }
}

function optionsOf(kind: Panel['kind']): object {
  switch (kind) {
    case 'stat':
      return { reduceOptions: { calcs: ['lastNotNull'], fields: '', values: false }, graphMode: 'area' }
    case 'timeseries':
      return { legend: { displayMode: 'list', placement: 'bottom' }, tooltip: { mode: 'multi', sort: 'desc' } }
    case 'heatmap':
      return { calculate: false, yAxis: { unit: 's' } }
    case 'table':
      return { showHeader: true }
  }
}

function datasourceVariable(): object {
  return { name: 'datasource', label: 'Data source', type: 'datasource', query: 'prometheus', current: {}, hide: 0 }
}

function labelVariable(label: 'job' | 'instance', within = ''): object {
  const query = `label_values(sallyport_build_info${within && `{${within}}`}, ${label})`
  return {
    name: label,
    label: label === 'job' ? 'Job' : 'Gateway',
    type: 'query',
    datasource: DATASOURCE,
    query: { query, refId: 'A' },
    definition: query,
    refresh: 2,
    multi: true,
    includeAll: true,
    allValue: '.*',
    current: { text: 'All', value: '$__all' },
    sort: 1,
    hide: 0,
  }
}
