/*
 * Tries, one by one, the ways out of a sandbox that are named in its arguments: NAME or NAME|ARGUMENT|ARGUMENT.
 * Prints a line for each: `open` or `shut`, the argument as it was given, and why, parted by tabs.
 * An attempt runs in a process of its own with a time limit, so that one that is killed is `shut` like one that fails.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/bpf.h>
#include <linux/perf_event.h>
#include <net/if.h>
#include <netinet/in.h>
#include <netinet/ip_icmp.h>
#include <poll.h>
#include <pty.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define PATIENCE_MS 1500
#define ATTEMPT_SECONDS 60
/* Numbers that older headers lack; the same on every processor. */
#define NR_io_uring_setup 425
#define NR_open_tree 428
#define NR_fsopen 430
#define NR_clone3 435
#define NR_pidfd_open 434
#define NR_pidfd_getfd 438

/* What an attempt found out: 0 is open, otherwise an errno. */
static char said[160];
static const char *first, *second;

static int result(long value) { return value < 0 ? errno : 0; }

/* ---- the network ---- */

static socklen_t address_of(struct sockaddr_storage *to) {
  memset(to, 0, sizeof *to);
  struct sockaddr_in *v4 = (void *)to;
  struct sockaddr_in6 *v6 = (void *)to;
  int port = second ? atoi(second) : 0;
  if (first && inet_pton(AF_INET, first, &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    return sizeof *v4;
  }
  if (first && inet_pton(AF_INET6, first, &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    return sizeof *v6;
  }
  fprintf(stderr, "no address: %s\n", first ? first : "");
  exit(2);
}

static int wait_for(int fd, short events) {
  struct pollfd one = {.fd = fd, .events = events};
  return poll(&one, 1, PATIENCE_MS) == 1 ? 0 : ETIMEDOUT;
}

static int connect_within(int fd, struct sockaddr_storage *to, socklen_t length) {
  fcntl(fd, F_SETFL, O_NONBLOCK);
  if (connect(fd, (void *)to, length) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  if (wait_for(fd, POLLOUT)) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

/* Something must come back: an address that swallows packets is no way out that can be told from a closed one. */
static int answered(int fd) {
  int late = wait_for(fd, POLLIN);
  if (late) return late;
  ssize_t count = recv(fd, said, sizeof said - 1, 0);
  if (count < 0) return errno;
  said[count] = 0;
  for (char *at = said; *at; at++)
    if (*at < ' ' || *at > '~') *at = '.';
  return count == 0 ? ECONNRESET : 0;
}

static int try_tcp(void) {
  struct sockaddr_storage to;
  socklen_t length = address_of(&to);
  int fd = socket(to.ss_family, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  int error = connect_within(fd, &to, length);
  if (error) return error;
  send(fd, "probe\n", 6, MSG_NOSIGNAL);
  return answered(fd);
}

static int try_udp(void) {
  struct sockaddr_storage to;
  socklen_t length = address_of(&to);
  int fd = socket(to.ss_family, SOCK_DGRAM, 0);
  if (fd < 0) return errno;
  if (connect(fd, (void *)&to, length) || send(fd, "probe", 5, 0) < 0) return errno;
  return answered(fd);
}

static int try_dns(void) {
  static const unsigned char query[] = "\x12\x34\x01\0\0\1\0\0\0\0\0\0\4leak\4test\0\0\1\0\1";
  struct sockaddr_storage to;
  socklen_t length = address_of(&to);
  int fd = socket(to.ss_family, SOCK_DGRAM, 0);
  if (fd < 0) return errno;
  if (connect(fd, (void *)&to, length) || send(fd, query, sizeof query - 1, 0) < 0) return errno;
  return answered(fd);
}

static int echo_request(int type) {
  struct sockaddr_storage to;
  second = NULL;
  socklen_t length = address_of(&to);
  int is6 = to.ss_family == AF_INET6;
  int fd = socket(to.ss_family, type, is6 ? IPPROTO_ICMPV6 : IPPROTO_ICMP);
  if (fd < 0) return errno;
  /* Checksum of a v4 echo request with nothing else in it; the kernel fills in the v6 one. */
  unsigned char packet[8] = {is6 ? 128 : ICMP_ECHO, 0, is6 ? 0 : 0xf7, is6 ? 0 : 0xff, 0, 0, 0, 0};
  if (sendto(fd, packet, sizeof packet, 0, (void *)&to, length) < 0) return errno;
  return answered(fd);
}

static int try_icmp_raw(void) { return echo_request(SOCK_RAW); }
static int try_icmp_datagram(void) { return echo_request(SOCK_DGRAM); }

/* FAMILY|TYPE|PROTOCOL, as numbers. */
static int try_socket(void) {
  char *rest = strdup(second);
  char *protocol = strchr(rest, '|');
  if (protocol) *protocol++ = 0;
  return result(socket(atoi(first), atoi(rest), protocol ? atoi(protocol) : 0));
}

static int try_socketpair(void) {
  int pair[2];
  return result(socketpair(atoi(first), atoi(second), 0, pair));
}

static int connect_unix(const char *name, int is_abstract) {
  int fd = socket(AF_UNIX, SOCK_STREAM, 0);
  if (fd < 0) return errno;
  struct sockaddr_un to = {.sun_family = AF_UNIX};
  strncpy(to.sun_path + is_abstract, name, sizeof to.sun_path - 2);
  return result(connect(fd, (void *)&to, offsetof(struct sockaddr_un, sun_path) + is_abstract + strlen(name) + !is_abstract));
}

static int try_unix(void) { return connect_unix(first, 0); }
static int try_abstract(void) { return connect_unix(first, 1); }

/* More interfaces than loopback. */
static int try_interfaces(void) {
  struct if_nameindex *all = if_nameindex();
  if (!all) return errno;
  int others = 0;
  for (struct if_nameindex *at = all; at->if_index; at++)
    if (strcmp(at->if_name, "lo")) others++;
  snprintf(said, sizeof said, "%d besides lo", others);
  return others ? 0 : ENODEV;
}

/* ---- the kernel ---- */

static int try_io_uring(void) {
  char parameters[120] = {0};
  return result(syscall(NR_io_uring_setup, 1, parameters));
}

static int try_unshare(void) { return result(unshare((int)strtol(first, NULL, 16))); }

/* Without a shared memory or a stack of its own: like fork. */
static int try_clone(void) {
  long child = syscall(SYS_clone, strtoul(first, NULL, 16) | SIGCHLD, 0, 0, 0, 0);
  if (child == 0) _exit(0);
  return result(child);
}

static int try_clone3(void) {
  unsigned long long arguments[11] = {strtoul(first, NULL, 16), 0, 0, 0, SIGCHLD};
  long child = syscall(NR_clone3, arguments, sizeof arguments);
  if (child == 0) _exit(0);
  return result(child);
}

static int try_setns(void) {
  int fd = open(first, O_RDONLY);
  return fd < 0 ? errno : result(setns(fd, 0));
}

/* Where this is allowed, outside, what follows must not happen to the machine itself. */
static void leave_host_mounts(void) {
  if (unshare(CLONE_NEWNS) == 0 && mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL)) exit(2);
}

static int try_mount(void) {
  leave_host_mounts();
  return result(mount("none", "/tmp", "tmpfs", 0, NULL));
}

static int try_umount(void) {
  leave_host_mounts();
  return result(umount2(first, MNT_DETACH));
}

static int try_remount(void) {
  leave_host_mounts();
  return result(mount("none", first, NULL, MS_REMOUNT | MS_BIND, NULL));
}

static int try_fsopen(void) { return result(syscall(NR_fsopen, "tmpfs", 0)); }
static int try_open_tree(void) { return result(syscall(NR_open_tree, AT_FDCWD, "/tmp", 1)); }
static int try_chroot(void) { return result(chroot("/tmp")); }
static int try_ptrace(void) { return result(ptrace(PTRACE_SEIZE, atoi(first), 0, 0)); }

static int try_read_memory(void) {
  char byte;
  struct iovec local = {&byte, 1}, remote = {(void *)try_read_memory, 1};
  process_vm_readv(atoi(first), &local, 1, &remote, 1, 0);
  /* Nothing may be mapped there: the question is whether the kernel looked. */
  return errno == EFAULT ? 0 : errno;
}

static int try_write_memory(void) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%s/mem", first);
  return result(open(path, O_RDWR));
}

static int try_take_descriptor(void) {
  int fd = syscall(NR_pidfd_open, atoi(first), 0);
  return fd < 0 ? errno : result(syscall(NR_pidfd_getfd, fd, 0, 0));
}

static int try_keyctl(void) { return result(syscall(SYS_keyctl, 0 /* KEYCTL_GET_KEYRING_ID */, -4 /* user's keyring */, 1)); }
static int try_add_key(void) { return result(syscall(SYS_add_key, "user", "probe", "x", 1, -1 /* thread's keyring */)); }

static int try_bpf(void) {
  union bpf_attr attribute = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
  return result(syscall(SYS_bpf, BPF_MAP_CREATE, &attribute, sizeof attribute));
}

static int try_perf(void) {
  struct perf_event_attr attribute = {.type = PERF_TYPE_SOFTWARE, .size = sizeof attribute, .config = PERF_COUNT_SW_DUMMY, .exclude_kernel = 1};
  return result(syscall(SYS_perf_event_open, &attribute, 0, -1, -1, 0));
}

static int try_userfaultfd(void) { return result(syscall(SYS_userfaultfd, 1 /* UFFD_USER_MODE_ONLY */)); }

static int try_kernel_log(void) {
  char text[4096];
  return result(syscall(SYS_syslog, 3, text, sizeof text));
}

static int try_handle(void) {
  struct {
    struct file_handle head;
    char bytes[128];
  } handle = {.head.handle_bytes = 128};
  int id;
  if (name_to_handle_at(AT_FDCWD, "/tmp", &handle.head, &id, 0)) return errno;
  int fd = open("/tmp", O_RDONLY);
  return result(open_by_handle_at(fd, &handle.head, O_RDONLY));
}

#ifdef __x86_64__
static int try_x32(void) { return result(syscall(0x40000000 + 39)); }
static int try_32bit(void) {
  long number = 20; /* getpid of i386 */
  __asm__ volatile("int $0x80" : "+a"(number)::"memory");
  return number > 0 ? 0 : ENOSYS;
}
#endif

static int try_terminal_input(void) {
  int master, slave;
  if (openpty(&master, &slave, NULL, NULL, NULL)) return errno;
  setsid();
  if (ioctl(slave, TIOCSCTTY, 0)) return errno;
  return result(ioctl(slave, TIOCSTI, "x"));
}

static int try_make_shared_memory(void) { return result(shmget((key_t)strtoul(first, NULL, 10), 4096, IPC_CREAT | IPC_EXCL | 0600)); }
static int try_shared_memory(void) { return result(shmget((key_t)strtoul(first, NULL, 10), 0, 0)); }

/* ---- files and processes ---- */

static int try_read(void) {
  int fd = open(first, O_RDONLY);
  if (fd < 0) return errno;
  // A record of the kernel's log is read whole or not at all (EINVAL), and may be overwritten just before (EPIPE).
  static char bytes[16384];
  ssize_t count;
  int tries = 0;
  do count = read(fd, bytes, sizeof bytes);
  while (count < 0 && errno == EPIPE && ++tries < 100);
  if (count > 0) snprintf(said, sizeof said, "%.*s", (int)count, bytes);
  for (char *at = said; *at; at++)
    if (*at < ' ') *at = ' ';
  return count > 0 ? 0 : count < 0 ? errno : ENODATA;
}

static int try_list(void) {
  DIR *folder = opendir(first);
  if (!folder) return errno;
  int count = 0;
  while (readdir(folder)) count++;
  snprintf(said, sizeof said, "%d entries", count - 2);
  return count > 2 ? 0 : ENODATA;
}

static int try_create(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/probe-%d", first, getpid());
  int fd = open(path, O_CREAT | O_EXCL | O_WRONLY, 0600);
  if (fd < 0) return errno;
  unlink(path);
  return 0;
}

/* Opened and not written. */
static int try_write(void) { return result(open(first, O_WRONLY)); }

/* A device of its own making. */
static int try_make_device(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/probe-device-%d", first, getpid());
  if (mknod(path, S_IFCHR | 0600, makedev(1, 5 /* zero */))) return errno;
  int error = result(open(path, O_RDONLY));
  unlink(path);
  return error;
}

/* A process whose arguments hold a text that is not in ours. */
static int try_see_process(void) {
  DIR *folder = opendir("/proc");
  if (!folder) return errno;
  for (struct dirent *at; (at = readdir(folder));) {
    char path[300], line[4096];
    snprintf(path, sizeof path, "/proc/%s/cmdline", at->d_name);
    if (atoi(at->d_name) == 0 || atoi(at->d_name) == getpid() || atoi(at->d_name) == getppid()) continue;
    int fd = open(path, O_RDONLY);
    ssize_t count = fd < 0 ? 0 : read(fd, line, sizeof line);
    if (fd >= 0) close(fd);
    /* Ours says it too, after a bar. */
    char *found = count > 0 ? memmem(line, count, first, strlen(first)) : NULL;
    if (found && (found == line || found[-1] != '|')) return 0;
  }
  return ESRCH;
}

static int try_signal(void) { return result(kill(atoi(first), 0)); }

/* As many sleeping children as there may be, at most N. Says how many. */
static int try_tasks(void) {
  int wanted = atoi(first), count = 0;
  pid_t *children = calloc(wanted, sizeof *children);
  while (count < wanted && (children[count] = fork()) >= 0) {
    if (children[count] == 0) {
      pause();
      _exit(0);
    }
    count++;
  }
  int error = count < wanted ? errno : 0;
  for (int at = 0; at < count; at++) kill(children[at], SIGKILL);
  while (wait(NULL) > 0) continue;
  snprintf(said, sizeof said, "%d", count);
  return error;
}

/* Touches N MiB. */
static int try_memory(void) {
  long bytes = atol(first) << 20;
  char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return errno;
  for (long at = 0; at < bytes; at += 4096) memory[at] = 1;
  return 0;
}

/* ---- */

static const struct {
  const char *name;
  int (*attempt)(void);
} ATTEMPTS[] = {
    {"tcp", try_tcp},
    {"udp", try_udp},
    {"dns", try_dns},
    {"icmp-raw", try_icmp_raw},
    {"icmp-datagram", try_icmp_datagram},
    {"socket", try_socket},
    {"socketpair", try_socketpair},
    {"unix", try_unix},
    {"abstract", try_abstract},
    {"interfaces", try_interfaces},
    {"io_uring", try_io_uring},
    {"unshare", try_unshare},
    {"clone", try_clone},
    {"clone3", try_clone3},
    {"setns", try_setns},
    {"mount", try_mount},
    {"umount", try_umount},
    {"remount", try_remount},
    {"fsopen", try_fsopen},
    {"open_tree", try_open_tree},
    {"chroot", try_chroot},
    {"ptrace", try_ptrace},
    {"read-memory", try_read_memory},
    {"write-memory", try_write_memory},
    {"take-descriptor", try_take_descriptor},
    {"keyctl", try_keyctl},
    {"add_key", try_add_key},
    {"bpf", try_bpf},
    {"perf", try_perf},
    {"userfaultfd", try_userfaultfd},
    {"kernel-log", try_kernel_log},
    {"handle", try_handle},
#ifdef __x86_64__
    {"x32", try_x32},
    {"32bit", try_32bit},
#endif
    {"terminal-input", try_terminal_input},
    {"make-shared-memory", try_make_shared_memory},
    {"shared-memory", try_shared_memory},
    {"read", try_read},
    {"list", try_list},
    {"create", try_create},
    {"write", try_write},
    {"make-device", try_make_device},
    {"see-process", try_see_process},
    {"signal", try_signal},
    {"tasks", try_tasks},
    {"memory", try_memory},
};

static void run(const char *argument, int (*attempt)(void)) {
  int pipes[2];
  if (pipe(pipes)) exit(2);
  fflush(stdout);
  pid_t child = fork();
  if (child < 0) {
    printf("shut\t%s\tfork: %s\n", argument, strerror(errno));
    return;
  }
  if (child == 0) {
    close(pipes[0]);
    alarm(ATTEMPT_SECONDS);
    errno = 0;
    int error = attempt();
    dprintf(pipes[1], "%s\t%s\t%s%s%s\n", error ? "shut" : "open", argument, error ? strerrorname_np(error) : "", error && *said ? " " : "", said);
    /* A helper may share the descriptor; the parent reads to the end of it. */
    _exit(0);
  }
  close(pipes[1]);
  char line[1024];
  ssize_t count = read(pipes[0], line, sizeof line);
  close(pipes[0]);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) continue;
  if (count > 0) printf("%.*s", (int)count, line);
  else printf("shut\t%s\tkilled by %s\n", argument, WIFSIGNALED(status) ? sigabbrev_np(WTERMSIG(status)) : "nothing");
}

int main(int count, char **arguments) {
  signal(SIGPIPE, SIG_IGN);
  for (int at = 1; at < count; at++) {
    char *name = strdup(arguments[at]);
    char *bar = strchr(name, '|');
    first = second = NULL;
    if (bar) {
      *bar = 0;
      first = bar + 1;
      char *next = strchr(first, '|');
      if (next) {
        *next = 0;
        second = next + 1;
      }
    }
    size_t index = 0, known = sizeof ATTEMPTS / sizeof *ATTEMPTS;
    while (index < known && strcmp(ATTEMPTS[index].name, name)) index++;
    if (index == known) {
      fprintf(stderr, "no such attempt: %s\n", name);
      return 2;
    }
    run(arguments[at], ATTEMPTS[index].attempt);
  }
  return 0;
}
