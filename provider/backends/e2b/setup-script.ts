/** Makes a machine ready for commands, in Perl as the others, and says what it is like. May be run again. */

/**
 * As the template's user: `perl -e SCRIPT -- MARK`. Prints a byte 0x1E and MARK, then `home PATH` (percent-encoded), `curl yes` or `curl no`, and `ok`.
 * Without Perl it prints nothing at all, since bash finds none.
 */
export const SETUP_SCRIPT = String.raw`
use strict;
my ($mark) = @ARGV;
$| = 1;
print "\x1e$mark\n";
sub fault { my ($name) = grep { $!{$_} } keys %!; print 'fault ' . (defined $name ? $name : 'EIO') . "\n"; exit 0 }
my $home = $ENV{HOME} || '/tmp';
chdir $home or fault();
for my $each (['workspace', 0755], ['.sallyport', 0700]) { mkdir $each->[0], $each->[1] or $!{EEXIST} or fault() }
my ($curl) = grep { -x "$_/curl" } split /:/, $ENV{PATH};
$home =~ s{([^A-Za-z0-9/._-])}{sprintf '%%%02X', ord $1}ge;
print "home $home\ncurl " . (defined $curl ? 'yes' : 'no') . "\nok\n";
`

/** As root: `perl -e SCRIPT -- MARK ADDRESS NAME`: inside no name is resolved, and the certificate of the gateway has its name. */
export const HOSTS_SCRIPT = String.raw`
use strict;
my ($mark, $address, $name) = @ARGV;
print "\x1e$mark\n";
if (open my $hosts, '>>', '/etc/hosts') { print $hosts "\n$address $name\n"; close $hosts and print "ok\n" or print "fault EIO\n" }
else { print "fault EACCES\n" }
`
