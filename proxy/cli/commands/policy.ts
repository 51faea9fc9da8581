/** `sallyport policy`: checks, explains, lists and tests policies, all by the code that the gateway itself runs. */
import { addGroup, type CommandHost } from '../command.ts'
import { addCheckCommand } from './policy-check.ts'
import { addExplainCommand } from './policy-explain.ts'
import { addPresetsCommand } from './policy-presets.ts'
import { addTestCommand } from './policy-test.ts'

/** Adds the commands. */
export function addPolicyCommands(host: CommandHost): void {
  const group = addGroup(host, 'policy', 'check, explain and test policies', [
    'sallyport policy check sallyport.yaml',
    'sallyport policy explain --token-file sandbox.token --host api.github.com',
    'sallyport policy test cases.yaml --config sallyport.yaml',
  ])
  addCheckCommand(group)
  addExplainCommand(group)
  addPresetsCommand(group)
  addTestCommand(group)
}
