/**
 * Looks for a way out from where the commands run, in Perl as the others.
 *
 * `perl -e SCRIPT -- MARK TIMEOUT_S DESTINATION SECURE HOST PORT (tcp|udp HOST PORT)…`, the first address the gateway's; the credentials for it are in
 * `SALLYPORT_PROBE`, and in the variables that commands have. Prints a byte 0x1E and MARK, a line for each address (`connected`, `timeout` or an errno) and one of the gateway
 * (`gateway STATUS REASON`, `gateway error WORD`), and `ok`. Perl of the base has no TLS, so there curl asks.
 */
export const PROBE_SCRIPT = String.raw`
use strict;
use Socket qw(:DEFAULT inet_pton AF_INET6 pack_sockaddr_in6);
my ($mark, $timeout, $destination, $secure, $host, $port, @targets) = @ARGV;
$| = 1;
print "\x1e$mark\n";
sub errno { my ($name) = grep { $!{$_} } keys %!; defined $name ? $name : 'failed' }
sub reach {
  my ($kind, $host, $port, $seconds) = @_;
  my $six = $host =~ /:/;
  my $address = $six ? pack_sockaddr_in6($port, inet_pton(AF_INET6, $host)) : pack_sockaddr_in($port, inet_pton(AF_INET, $host));
  socket(my $socket, $six ? AF_INET6 : AF_INET, $kind eq 'udp' ? SOCK_DGRAM : SOCK_STREAM, 0) or return errno();
  my $outcome = eval {
    local $SIG{ALRM} = sub { die "timeout\n" };
    alarm $seconds;
    my $done = connect($socket, $address);
    my $name = $done ? 'connected' : errno();
    alarm 0;
    $name;
  };
  $outcome = 'timeout' unless defined $outcome;
  ($outcome, $socket);
}
while (my ($kind, $to, $at) = splice @targets, 0, 3) { my ($outcome) = reach($kind, $to, $at, $timeout); print "$outcome\n" }
sub answer {
  my ($head) = @_;
  return 'error no_http' unless $head =~ m{^HTTP/1\.[01] (\d{3})[ \r]};
  my $status = $1;
  my $reason = $head =~ /^x-deny-reason: ?([a-z_]{1,40})\r?$/im ? $1 : '';
  "$status $reason";
}
my $said;
if ($secure) {
  # The destination is refused anyway; what counts is who refuses it, and how.
  my $head = '';
  if (open my $pipe, '-|', 'curl', '-sS', '-p', '-o', '/dev/null', '-D', '-', '--max-time', '10', "http://$destination/") {
    local $/;
    $head = <$pipe>;
    close $pipe;
  } else { $said = 'error no_curl' }
  $said = $head eq '' ? 'error closed' : answer($head) unless defined $said;
} else {
  my ($outcome, $socket) = reach('tcp', $host, $port, 10);
  if ($outcome ne 'connected') { $said = "error $outcome" }
  else {
    my $basic = defined $ENV{SALLYPORT_PROBE} ? "Proxy-Authorization: Basic $ENV{SALLYPORT_PROBE}\r\n" : '';
    syswrite($socket, "CONNECT $destination HTTP/1.1\r\nHost: $destination\r\n$basic\r\n");
    my $head = '';
    eval {
      local $SIG{ALRM} = sub { die "timeout\n" };
      alarm 10;
      while ($head !~ /\r\n\r\n/ && length $head < 16384) { last unless sysread($socket, $head, 4096, length $head) }
      alarm 0;
    };
    $said = $@ ? 'error timeout' : $head eq '' ? 'error closed' : answer($head);
  }
}
print "gateway $said\nok\n";
`
