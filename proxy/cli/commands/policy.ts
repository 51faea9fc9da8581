/** `sallyport policy`: checks, explains, lists, tests, suggests and replays policies, all by the code that the gateway itself runs. */
import { addGroup, type CommandHost } from '../command.ts'
import { addCheckCommand } from './policy-check.ts'
import { addExplainCommand } from './policy-explain.ts'
import { addPresetsCommand } from './policy-presets.ts'
import { addReplayCommand } from './policy-replay.ts'
import { addSuggestCommand } from './policy-suggest.ts'
import { addTestCommand } from './policy-test.ts'

/** Adds the commands. */
export function addPolicyCommands(host: CommandHost): void {
  const group = addGroup(host, 'policy', 'check, explain, test, suggest and replay policies', [
    'sallyport policy check sallyport.yaml',
    'sallyport policy explain --token-file sandbox.token --host api.github.com',
    'sallyport policy test cases.yaml --config sallyport.yaml',
    'sallyport policy suggest --tenant acme --since 7d > acme.yaml',
  ])
  addCheckCommand(group)
  addExplainCommand(group)
  addPresetsCommand(group)
  addTestCommand(group)
  addSuggestCommand(group)
  addReplayCommand(group)
}
