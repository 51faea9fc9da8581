"""Runs `sallyport run` in a terminal, as a person would: types, resizes, presses Ctrl-C. Prints one line of what was seen."""
import fcntl, os, pty, select, signal, struct, sys, termios, time

HERE = os.path.dirname(os.path.abspath(__file__))
BINARY = os.path.join(HERE, '../../../provider/cli/bin.ts')
INSIDE = 'tty; stty size; trap "stty size" WINCH; echo ready; while ! read x; do :; done; echo "got-$x"; echo waiting; sleep 60'
DEADLINE = time.time() + 100

child, terminal = pty.fork()
if child == 0:
    # The size must be there before anybody asks for it.
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack('HHHH', 33, 99, 0, 0))
    os.execv(os.environ['NODE'], ['node', BINARY, 'run', '--', 'sh', '-c', INSIDE])

output = b''

def until(text):
    global output
    while text not in output:
        if time.time() > DEADLINE:
            sys.exit('waited in vain for %r, saw %r' % (text, output))
        if select.select([terminal], [], [], 1)[0]:
            output += os.read(terminal, 4096)

seen = []
until(b'ready')
if b'/dev/pts/' in output: seen.append('tty')
if b'33 99' in output: seen.append('size-33-99')
fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack('HHHH', 44, 55, 0, 0))
os.kill(child, signal.SIGWINCH)
until(b'44 55')
seen.append('size-44-55')
os.write(terminal, b'abc\r')
until(b'waiting')
if output.count(b'abc') == 2 and b'got-abc' in output: seen.append('echoed')
os.write(terminal, b'\x03')
try:
    while os.read(terminal, 4096): pass
except OSError:
    pass
status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
seen.append('interrupted' if status == 130 else 'ended with %d' % status)
print(' '.join(seen))
