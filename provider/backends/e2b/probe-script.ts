/**
 * Looks for a way out from where the commands run, in Perl as the others.
 *
 * `perl -e SCRIPT -- MARK TIMEOUT_S WAY DESTINATION HOST PORT (HOST PORT)…`, the first address the gateway's; the others are tried over TCP and UDP, and must
 * not answer: E2B lets every connection seem to open, and then closes what it stops. Prints a byte 0x1E and MARK, a line for each of them (`connected` or
 * `answered_over_udp` when something came back, `timeout` or an errno) and one of the gateway (`gateway STATUS REASON`, `gateway error WORD`), and `ok`.
 *
 * WAY is how the gateway is asked: `plain` and `tls` with the credentials in `SALLYPORT_PROBE` or in the variables that commands have; Perl of the base has
 * no TLS, so there curl asks. `straight`: the platform carries it there, and nobody inside hears why it was refused; `closed` is all that can be seen.
 */
export const PROBE_SCRIPT = String.raw`
use strict;
use Socket qw(:DEFAULT inet_pton AF_INET6 pack_sockaddr_in6);
my ($mark, $timeout, $way, $destination, $host, $port, @targets) = @ARGV;
$| = 1;
$SIG{PIPE} = 'IGNORE';
print "\x1e$mark\n";
sub errno { my ($name) = grep { $!{$_} } keys %!; defined $name ? $name : 'failed' }
sub within {
  my ($seconds, $code) = @_;
  my $outcome = eval {
    local $SIG{ALRM} = sub { die "timeout\n" };
    alarm $seconds;
    my $name = $code->();
    alarm 0;
    $name;
  };
  alarm 0;
  defined $outcome ? $outcome : 'timeout';
}
sub place { my ($host, $port) = @_; $host =~ /:/ ? (AF_INET6, pack_sockaddr_in6($port, inet_pton(AF_INET6, $host))) : (AF_INET, pack_sockaddr_in($port, inet_pton(AF_INET, $host))) }
sub reach {
  my ($host, $port, $seconds) = @_;
  my ($family, $address) = place($host, $port);
  socket(my $socket, $family, SOCK_STREAM, 0) or return errno();
  (within($seconds, sub { connect($socket, $address) ? 'connected' : errno() }), $socket);
}
my $question = pack 'H*', '53500100000100000000000003777777076578616d706c6503636f6d0000010001';
my $hello = pack 'H*', '1603010069010000650303' . '73' x 32 . '00001a130113021303c02bc02fc02cc030cca9cca8009c009d002f003501000022000a00080006001d00170018000d000c000a04030804040105030805000b00020100';
my %words = (53 => pack('n', length $question) . $question, 443 => $hello);
my (@datagrams, @outcomes);
while (my ($to, $at) = splice @targets, 0, 2) {
  my ($family, $address) = place($to, $at);
  if (socket(my $socket, $family, SOCK_DGRAM, 0)) { push @datagrams, [scalar @outcomes, $socket] if connect($socket, $address) && defined send($socket, $question, 0) }
  my ($outcome, $socket) = reach($to, $at, $timeout);
  $outcome = within($timeout, sub {
    syswrite($socket, $words{$at} || "GET / HTTP/1.0\r\n\r\n");
    my $count = sysread($socket, my $answer, 4096);
    defined $count ? $count > 0 ? 'connected' : 'ECONNRESET' : errno();
  }) if $outcome eq 'connected';
  push @outcomes, $outcome;
}
for (@datagrams) {
  my ($index, $socket) = @$_;
  my $ready = '';
  vec($ready, fileno($socket), 1) = 1;
  # The first waits for all of them.
  $outcomes[$index] = 'answered_over_udp' if select($ready, undef, undef, $timeout) > 0 && sysread($socket, my $answer, 4096);
  $timeout = 0;
}
print "$_\n" for @outcomes;
sub answer {
  my ($head) = @_;
  return 'error no_http' unless $head =~ m{^HTTP/1\.[01] (\d{3})[ \r]};
  my $status = $1;
  my $reason = $head =~ /^x-deny-reason: ?([a-z_]{1,40})\r?$/im ? $1 : '';
  "$status $reason";
}
sub head_of {
  my ($to, $at, $request) = @_;
  my ($outcome, $socket) = reach($to, $at, 10);
  return ($outcome, '') if $outcome ne 'connected';
  my $head = '';
  my $end = within(10, sub {
    syswrite($socket, $request);
    while ($head !~ /\r\n\r\n/ && length $head < 16384) { last unless sysread($socket, $head, 4096, length $head) }
    'closed';
  });
  ($end, $head);
}
my $said;
if ($way eq 'tls') {
  # The destination is refused anyway; what counts is who refuses it, and how.
  my $head = '';
  if (open my $pipe, '-|', 'curl', '-sS', '-p', '-o', '/dev/null', '-D', '-', '--max-time', '10', "http://$destination/") {
    local $/;
    $head = <$pipe>;
    close $pipe;
  } else { $said = 'error no_curl' }
  $said = $head eq '' ? 'error closed' : answer($head) unless defined $said;
} elsif ($way eq 'straight') {
  # By the name alone; the address is nobody's.
  my ($end, $head) = head_of('192.0.2.1', 80, "GET / HTTP/1.1\r\nHost: $destination\r\nConnection: close\r\n\r\n");
  $said = 'error ' . ($head eq '' ? $end : 'answered');
} else {
  my $basic = defined $ENV{SALLYPORT_PROBE} ? "Proxy-Authorization: Basic $ENV{SALLYPORT_PROBE}\r\n" : '';
  my ($end, $head) = head_of($host, $port, "CONNECT $destination HTTP/1.1\r\nHost: $destination\r\n$basic\r\n");
  $said = $head eq '' ? "error $end" : answer($head);
}
print "gateway $said\nok\n";
`
