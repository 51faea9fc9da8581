/** What a verification found, in words for whoever asked. */
import { visibleLine } from '../visible-text.ts'
import type { AuditFault, AuditVerification, InstanceReport, RunReport } from './verify.ts'

/** The lines to print; the last one is the verdict. */
export function describeVerification(verification: AuditVerification): readonly string[] {
  return linesOf(verification).map(visibleLine)
}

function linesOf({ ok, signatures, fault, instances }: AuditVerification): readonly string[] {
  const lines = instances.flatMap(describeInstance)
  if (signatures === 'unchecked')
    lines.push(
      'signatures were not checked, for want of a public key: whoever can write the files could have made the whole chain anew',
    )
  if (fault !== undefined) return [...lines, `fault: ${describeFault(fault)}`]
  return [...lines, ok ? 'ok: nothing was cut, changed or reordered up to the last checkpoint' : 'fault']
}

function describeFault({ code, message, file, line }: AuditFault): string {
  const place = [file, line].filter((part) => part !== undefined).join(':')
  return `${place === '' ? '' : `${place}: `}${message} (${code})`
}

function describeInstance(report: InstanceReport): string[] {
  const { instance, lines, firstSeq, lastSeq, firstSegment, lastSegment, lastCheckpoint, unsignedLines, lost, runs } =
    report
  const described = [
    `${instance}: ${lines} lines, ${firstSeq} to ${lastSeq}, in files ${firstSegment} to ${lastSegment}`,
    ...runs.map(describeRun),
  ]
  if (lost > 0) described.push(`  ${lost} lines were lost while the log could not be written; \`gap\` lines say when`)
  if (lastCheckpoint === undefined) described.push('  no checkpoint')
  else if (unsignedLines === 0)
    described.push(`  signed up to the last line (${lastCheckpoint.seq}, ${lastCheckpoint.time})`)
  else
    described.push(
      `  signed up to line ${lastCheckpoint.seq} (${lastCheckpoint.time}); the last ${unsignedLines} are not signed yet, and could be changed or cut unseen`,
    )
  return described
}

function describeRun({ firstSeq, lastSeq, startTime, endTime, end, tornBytes }: RunReport): string {
  const words = {
    stop: 'stopped in order',
    unclean: 'ended without a stop (killed, or the log failed)',
    open: 'no stop line: still running, or killed',
  }
  const torn = tornBytes > 0 ? `; its last line is unfinished (${tornBytes} bytes)` : ''
  return `  run of ${startTime} to ${endTime}, lines ${firstSeq} to ${lastSeq}: ${words[end]}${torn}`
}
