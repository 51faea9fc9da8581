/** `sallyport serve`: runs the gateway until a signal ends it. The gateway is only loaded when it is run: other commands start without it. */
import { addCommand, option, type CommandHost } from '../command.ts'
import type { ServeOptions } from '../serve.ts'

/** Adds the command. */
export function addServeCommand(host: CommandHost): void {
  addCommand<ServeOptions>(host, {
    usage: 'serve',
    description:
      'run the gateway; without a configuration a development set-up in ./.sallyport, with two lines to paste',
    examples: ['sallyport serve', 'sallyport serve --config /etc/sallyport/sallyport.yaml'],
    options: [
      option('-c, --config <file>', 'configuration; default: $SALLYPORT_CONFIG, else the development set-up'),
      option('--pid-file <file>', 'write the process id there; the development set-up keeps it in its folder'),
    ],
    run: async (terminal, options) => (await import('../serve.ts')).serve(terminal, options),
  })
}
