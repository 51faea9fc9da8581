/**
 * What runs each command inside: Perl, since every Debian and Ubuntu has it (`perl-base` is essential there) and E2B takes images of those alone. It gives
 * the command a session of its own, so that all of it can be killed, keeps its time, and says how it ended, also while something else holds its pipes open.
 * envd itself kills one process and waits for the pipes.
 *
 * `perl -e SCRIPT -- MARK TIMEOUT_MS FOLDER PROGRAM ARGUMENT…`. What it says itself is between two bytes 0x1E and begins with MARK, in both streams:
 * `begin GROUP` before the first byte of the command, `end CODE SIGNAL TIMED_OUT` after its last; and in stderr alone `up`, once it is the program that
 * runs, or `fail WHAT ERRNO`.
 */
export const SUPERVISOR_SCRIPT = String.raw`
use strict;
use POSIX ();
my ($mark, $timeout, $folder, @command) = @ARGV;
$SIG{PIPE} = 'IGNORE';
sub say_to { my ($to, $text) = @_; syswrite($to, "\x1e$mark:$text\x1e") }
sub say_both { say_to(*STDOUT, $_[0]); say_to(*STDERR, $_[0]) }
sub errno { my ($name) = grep { $!{$_} } keys %!; defined $name ? $name : 'EIO' }
pipe(my $read, my $write) or do { say_to(*STDERR, 'fail fork ' . errno()); exit 0 };
my $pid = fork;
if (!defined $pid) { say_to(*STDERR, 'fail fork ' . errno()); exit 0 }
if ($pid == 0) {
  close $read;
  POSIX::setsid();
  $SIG{PIPE} = 'DEFAULT';
  if (!chdir $folder) { syswrite($write, 'folder ' . errno()); POSIX::_exit(127) }
  say_both("begin $$");
  { no warnings; exec { $command[0] } @command; }
  syswrite($write, 'program ' . errno());
  POSIX::_exit(127);
}
close $write;
my $failure = '';
while ((my $size = sysread($read, $failure, 100, length $failure)) || $!{EINTR}) { last if defined $size && $size == 0 }
if ($failure ne '') { waitpid($pid, 0); say_to(*STDERR, "fail $failure"); exit 0 }
say_to(*STDERR, 'up');
my $timed = 0;
if ($timeout > 0) {
  my $tick = POSIX::sysconf(&POSIX::_SC_CLK_TCK) || 100;
  my $now = sub { (POSIX::times())[0] * 1000 / $tick };
  my $deadline = $now->() + $timeout;
  $SIG{CHLD} = sub { };
  while (waitpid($pid, POSIX::WNOHANG()) == 0) {
    my $left = $deadline - $now->();
    if ($left <= 0) { $timed = 1; kill 'KILL', -$pid; waitpid($pid, 0); last }
    select(undef, undef, undef, $left > 100 ? 0.1 : $left / 1000);
  }
} else {
  1 while waitpid($pid, 0) < 0 && $!{EINTR};
}
my $status = $?;
say_both('end ' . ($status >> 8) . ' ' . ($status & 127) . " $timed");
`
