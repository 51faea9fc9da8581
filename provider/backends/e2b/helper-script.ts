/**
 * What does things with files inside, in Perl as the supervisor: never outside of the sandbox's folder, whatever links are there. A path is opened first
 * without reading anything (O_PATH), then the kernel is asked what was opened, and all else goes through that descriptor, so that no exchange of a folder
 * for a link in between leads anywhere.
 *
 * `perl -e SCRIPT -- MARK ROOT SPOOL OPERATION ARGUMENT…`, each argument the bytes of a path or word in hexadecimal. It prints a byte 0x1E and MARK, then lines,
 * the last of which is `ok` or `fault CODE`. Paths in lines are percent-encoded.
 */
export const HELPER_SCRIPT = String.raw`
use strict;
my ($mark, $root, $spool, $operation, @words) = @ARGV;
$_ = pack 'H*', $_ for $root, $spool, @words;
$| = 1;
print "\x1e$mark\n";
sub fault { print "fault $_[0]\n"; exit 0 }
sub errno { my ($name) = grep { $!{$_} } keys %!; defined $name ? $name : 'EIO' }
sub encoded { my $text = $_[0]; $text =~ s{([^A-Za-z0-9/._-])}{sprintf '%%%02X', ord $1}ge; $text }
sub within { my ($place, $folder) = @_; $place eq $folder || index($place, "$folder/") == 0 }
sub anchor {
  my $path = $_[0];
  sysopen(my $handle, $path, 010000000) or return;
  my $via = '/proc/self/fd/' . fileno $handle;
  return { handle => $handle, via => $via, real => scalar readlink $via };
}
my $home = anchor($root) or fault('ENOENT');
$root = $home->{real};
sub whole {
  my $path = $_[0] =~ m{^/} ? $_[0] : "$root/$_[0]";
  my @parts;
  for my $part (split m{/+}, $path) {
    next if $part eq '' || $part eq '.';
    if ($part eq '..') { pop @parts } else { push @parts, $part }
  }
  '/' . join '/', @parts;
}
sub opened { my $found = anchor($_[0]) or return; within($found->{real}, $root) or fault('outside'); $found }
sub parts { my ($folder, $name) = $_[0] =~ m{^(.*)/([^/]*)$}s; ($folder eq '' ? '/' : $folder, $name) }
sub folder {
  my ($path, $make) = @_;
  my $found = opened($path);
  if (!$found) {
    fault(errno()) unless $make && $!{ENOENT} && $path ne '/';
    my ($above, $name) = parts($path);
    my $parent = folder($above, 1);
    mkdir "$parent->{via}/$name", 0755 or $!{EEXIST} or fault(errno());
    $found = opened("$parent->{via}/$name") or fault(errno());
  }
  -d $found->{via} or fault('ENOTDIR');
  $found;
}
sub parent_of {
  my ($path, $make) = @_;
  my ($above, $name) = parts(whole($path));
  my $parent = folder($above, $make);
  my $place = "$parent->{real}/$name";
  fault('outside') unless within($place, $root);
  fault('root') if within($root, $place);
  ($parent, "$parent->{via}/$name");
}
sub missing { $!{ENOENT} || $!{ENOTDIR} }
sub remove {
  my $place = $_[0];
  my @stat = lstat $place or return missing() || fault(errno());
  if (($stat[2] & 0170000) == 0040000) {
    if (opendir my $list, $place) { my @names = grep { $_ ne '.' && $_ ne '..' } readdir $list; closedir $list; remove("$place/$_") for @names }
    rmdir $place or missing() or fault(errno());
  } else { unlink $place or missing() or fault(errno()) }
}
my %operations = (
  stat => sub {
    my $found = opened(whole($_[0]));
    if (!$found) { fault(errno()) unless missing(); print "none\n"; return }
    my @stat = stat $found->{via} or fault(errno());
    my $kind = -f _ ? 'file' : -d _ ? 'directory' : 'other';
    print "stat $kind $stat[7] " . ($stat[2] & 07777) . ' ' . ($stat[9] * 1000) . ' ' . encoded($found->{real}) . "\n";
  },
  open => sub {
    my ($path, $name) = @_;
    my $found = opened(whole($path)) or fault(errno());
    my @stat = stat $found->{via} or fault(errno());
    fault('EISDIR') if -d _;
    fault('not_a_file') unless -f _;
    my $place = $found->{real};
    # envd takes names in UTF-8 alone.
    if ($place =~ /[^\x00-\x7f]/ && !utf8::decode(my $copy = $place)) { symlink $place, "$spool/$name" or fault(errno()); $place = "$spool/$name" }
    print "file $stat[7] " . encoded($place) . "\n";
  },
  list => sub {
    my $found = opened(whole($_[0]));
    if (!$found) { fault(errno()) unless missing(); return }
    fault('ENOTDIR') unless -d $found->{via};
    my @folders = ($found->{real});
    while (defined(my $folder = pop @folders)) {
      opendir my $list, $folder or next;
      while (defined(my $name = readdir $list)) {
        next if $name eq '.' || $name eq '..';
        my @stat = lstat "$folder/$name" or next;
        my $kind = $stat[2] & 0170000;
        if ($kind == 0040000) { push @folders, "$folder/$name" }
        elsif ($kind == 0100000) { print "f $stat[7] " . encoded("$folder/$name") . "\n" }
      }
    }
  },
  mkdir => sub { folder(whole($_[0]), 1) },
  remove => sub {
    my ($above, $name) = parts(whole($_[0]));
    my $there = opened($above);
    if (!$there) { fault(errno()) unless missing(); return }
    my ($parent, $place) = parent_of($_[0]);
    remove($place);
  },
  move => sub {
    my ($from, $to) = @_;
    my ($source, $old) = parent_of($from);
    lstat $old or fault(errno());
    my ($target, $new) = parent_of($to, 1);
    rename $old, $new or fault(errno());
  },
  place => sub {
    my ($name, $path, $mode) = @_;
    my ($parent, $place) = parent_of($path, 1);
    if (defined readlink $place) {
      my $end = opened($place) or fault(errno());
      ($parent, $place) = parent_of($end->{real});
    }
    my @present = lstat $place;
    fault('EISDIR') if @present && -d _;
    my $new = $mode ne '' ? oct $mode : @present && -f _ ? $present[2] & 07777 : 0644;
    chmod $new, "$spool/$name" or fault(errno());
    rename "$spool/$name", $place or fault(errno());
  },
  kill => sub { my ($signal, $group) = @_; kill $signal, -$group or $!{ESRCH} or fault(errno()) },
  look => sub {
    my ($tool) = @_;
    my ($found) = grep { -x "$_/$tool" } split /:/, $ENV{PATH};
    print 'tool ' . (defined $found ? 'yes' : 'no') . "\n";
  },
);
my $action = $operations{$operation} or fault('bad_request');
$action->(@words);
print "ok\n";
`
