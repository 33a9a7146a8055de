/* Operations on files that fail when a variable says so. Loaded before the C library (LD_PRELOAD), whose functions it stands
 * in front of. What it looks at lies below one folder; anything else passes through.
 *
 * RUNNER_FAULT_DIR    the folder, absolute and without links
 * RUNNER_FAULT_LOG    a file outside of it that gets one record for each operation (see `record`)
 * RUNNER_FAULT_DATA   set: records of writes have the bytes that were written
 * RUNNER_FAULT        N:KIND:ERRNO, what happens to the N-th operation, from 1:
 *    error      fails with ERRNO; nothing is done
 *    late       is done, and fails with ERRNO
 *    full       it and all later ones that take room fail; a write puts down one half first
 *    readonly   it and all later ones that change something fail
 *    dead       it and all later ones fail
 *    short      reads or writes one half
 *    slow       takes a while
 *    signal     SIGINT comes just before
 *    kill       SIGKILL comes just before
 *    torn       one half is written, then SIGKILL comes
 * RUNNER_FAULT_ALLOC  N:BYTES, the N-th allocation of at least so many bytes fails; N = 0 only counts them
 *
 * Processes that the program starts are left alone.
 *
 * Writes are not made durable in truth: an fsync is noted, and takes no time.
 */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum kind { NONE, ERROR, LATE, FULL, READONLY, DEAD, SHORT, SLOW, SIGNAL, KILL, TORN };
static const char *const kinds[] = {"", "error", "late", "full", "readonly", "dead", "short", "slow", "signal", "kill", "torn"};

/* What an operation does to the disk. */
enum { READS = 0, CHANGES = 1, TAKES_ROOM = 2 };

static int ready, with_data, log_fd = -1, wanted_errno;
static enum kind kind;
static long wanted;
static char folder[PATH_MAX];
static size_t folder_len;
static atomic_long operations, allocations;
static long wanted_allocation = -1;
static size_t wanted_bytes;

__attribute__((constructor)) static void start(void)
{
    const char *dir = getenv("RUNNER_FAULT_DIR"), *log = getenv("RUNNER_FAULT_LOG"), *fault = getenv("RUNNER_FAULT");
    const char *alloc = getenv("RUNNER_FAULT_ALLOC");
    char name[16] = "";
    with_data = getenv("RUNNER_FAULT_DATA") != NULL;
    if (log) {
        int fd = (int)syscall(SYS_openat, AT_FDCWD, log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        /* A high number, so that the program's own are what they always are. */
        log_fd = (int)syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 500);
        syscall(SYS_close, fd);
    }
    if (alloc && sscanf(alloc, "%ld:%zu", &wanted_allocation, &wanted_bytes) != 2)
        abort();
    if (dir) {
        snprintf(folder, sizeof folder, "%s", dir);
        folder_len = strlen(folder);
        if (fault) {
            if (sscanf(fault, "%ld:%15[a-z]:%d", &wanted, name, &wanted_errno) != 3)
                abort();
            for (kind = TORN; kind != NONE && strcmp(kinds[kind], name); kind--)
                ;
            if (kind == NONE)
                abort();
        }
        ready = 1;
    }
    /* Whatever it starts has operations of its own. */
    static const char *const names[] = {"DIR", "LOG", "DATA", "ALLOC"};
    unsetenv("RUNNER_FAULT");
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char variable[32];
        snprintf(variable, sizeof variable, "RUNNER_FAULT_%s", names[i]);
        unsetenv(variable);
    }
}

/* ---- paths ---- */

/* Takes `.`, `..` and double slashes out of an absolute path, in place. */
static void normalize(char *path)
{
    char *out = path, *in = path;
    while (*in) {
        char *end = in + 1;
        while (*end && *end != '/')
            end++;
        size_t len = (size_t)(end - in);
        if (len == 3 && in[1] == '.' && in[2] == '.') {
            while (out > path && *--out != '/')
                ;
        } else if (len > 1 && !(len == 2 && in[1] == '.')) {
            memmove(out, in, len);
            out += len;
        }
        in = end;
    }
    *out = 0;
}

/* The part of an absolute path below the folder, `.` for the folder itself; NULL if it lies elsewhere. */
static const char *below(const char *path)
{
    if (strncmp(path, folder, folder_len))
        return NULL;
    if (!path[folder_len])
        return ".";
    return path[folder_len] == '/' ? path + folder_len + 1 : NULL;
}

static const char *of_fd(int fd, char *buffer)
{
    char link[40];
    if (!ready || fd < 0 || fd == log_fd)
        return NULL;
    int before = errno;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long n = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX - 1);
    errno = before;
    if (n <= 0)
        return NULL;
    buffer[n] = 0;
    return below(buffer);
}

static const char *of_path(int dirfd, const char *path, char *buffer)
{
    if (!ready || !path)
        return NULL;
    if (!*path)
        return of_fd(dirfd, buffer);
    if (*path == '/') {
        snprintf(buffer, PATH_MAX, "%s", path);
    } else {
        char link[40];
        int before = errno;
        if (dirfd == AT_FDCWD)
            snprintf(link, sizeof link, "/proc/self/cwd");
        else
            snprintf(link, sizeof link, "/proc/self/fd/%d", dirfd);
        long n = syscall(SYS_readlinkat, AT_FDCWD, link, buffer, PATH_MAX / 2);
        errno = before;
        if (n <= 0)
            return NULL;
        snprintf(buffer + n, (size_t)(PATH_MAX - n), "/%s", path);
    }
    normalize(buffer);
    return below(buffer);
}

/* ---- one operation ---- */

struct operation {
    const char *name, *path, *other;
    long flags, offset;
    const void *data;
    /* What is to happen, and the error of it. */
    enum kind what;
    int error, hit;
};

static void record(const struct operation *o, long result, int error)
{
    if (log_fd < 0)
        return;
    char line[2 * PATH_MAX + 200];
    size_t bytes = with_data && o->data && result > 0 ? (size_t)result : 0;
    int n = snprintf(line, sizeof line, "%s\t%d\t%ld\t%d\t%ld\t%ld\t%zu\t%s\t%s\n", o->name, o->hit, result, error, o->flags,
                     o->offset, bytes, o->path, o->other ? o->other : "");
    struct iovec parts[2] = {{line, (size_t)n}, {(void *)o->data, bytes}};
    int before = errno;
    syscall(SYS_writev, log_fd, parts, bytes ? 2 : 1);
    errno = before;
}

static void fail(struct operation *o, int error)
{
    o->what = ERROR;
    o->error = error;
}

static void begin(struct operation *o, int effect)
{
    long n = atomic_fetch_add(&operations, 1) + 1;
    o->what = NONE;
    o->hit = kind != NONE && n == wanted;
    if (kind == NONE || n < wanted)
        return;
    switch (kind) {
    case FULL:
        if (!(effect & TAKES_ROOM))
            break;
        o->hit = 1;
        fail(o, wanted_errno);
        if (n == wanted && o->data)
            o->what = SHORT;
        break;
    case READONLY:
        if (effect & CHANGES)
            o->hit = 1, fail(o, wanted_errno);
        break;
    case DEAD:
        o->hit = 1;
        fail(o, wanted_errno);
        break;
    default:
        if (n > wanted)
            break;
        o->what = kind;
        o->error = wanted_errno;
        if (kind == SLOW) {
            struct timespec while_ = {0, 20 * 1000 * 1000};
            nanosleep(&while_, NULL);
        } else if (kind == SIGNAL) {
            kill(getpid(), SIGINT);
            struct timespec while_ = {0, 2 * 1000 * 1000};
            nanosleep(&while_, NULL);
        } else if (kind == KILL) {
            record(o, -1, 0);
            kill(getpid(), SIGKILL);
        }
    }
}

static void torn(struct operation *o, long result)
{
    record(o, result, 0);
    kill(getpid(), SIGKILL);
}

/* Does an operation as it is to go; `half` is what it does where only one half is to be done. */
#define DO(o, effect, all, half)                     \
    ({                                               \
        begin(&(o), effect);                         \
        long result_;                                \
        switch ((o).what) {                          \
        case ERROR: result_ = -1; break;             \
        case LATE: (void)(all); result_ = -1; break; \
        case SHORT: result_ = (half); break;         \
        case TORN: torn(&(o), half); result_ = -1; break; \
        default: result_ = (all);                    \
        }                                            \
        int error_ = result_ == -1 ? errno : 0;      \
        if ((o).what == ERROR || (o).what == LATE)   \
            error_ = (o).error;                      \
        record(&(o), result_, error_);               \
        if (result_ == -1)                           \
            errno = error_;                          \
        result_;                                     \
    })
#define WHOLE(o, effect, all) DO(o, effect, all, all)

static size_t half_of(size_t n) { return n > 1 ? n / 2 : n; }

/* ---- opening and closing ---- */

static int do_open(int dirfd, const char *path, int flags, mode_t mode)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "open", .flags = flags};
    if (!(o.path = of_path(dirfd, path, buffer)))
        return (int)syscall(SYS_openat, dirfd, path, flags, mode);
    int effect = READS;
    if ((flags & O_ACCMODE) != O_RDONLY || flags & (O_CREAT | O_TRUNC))
        effect = CHANGES;
    struct stat s;
    if (flags & O_CREAT && syscall(SYS_newfstatat, dirfd, path, &s, 0))
        effect |= TAKES_ROOM;
    return (int)WHOLE(o, effect, syscall(SYS_openat, dirfd, path, flags, mode));
}

#define MODE(flags)                              \
    mode_t mode = 0;                             \
    if ((flags) & (O_CREAT | O_TMPFILE)) {       \
        va_list list;                            \
        va_start(list, flags);                   \
        mode = (mode_t)va_arg(list, int);        \
        va_end(list);                            \
    }
int open(const char *path, int flags, ...) { MODE(flags) return do_open(AT_FDCWD, path, flags, mode); }
int open64(const char *path, int flags, ...) { MODE(flags) return do_open(AT_FDCWD, path, flags, mode); }
int openat(int dirfd, const char *path, int flags, ...) { MODE(flags) return do_open(dirfd, path, flags, mode); }
int openat64(int dirfd, const char *path, int flags, ...) { MODE(flags) return do_open(dirfd, path, flags, mode); }
int creat(const char *path, mode_t mode) { return do_open(AT_FDCWD, path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
int creat64(const char *path, mode_t mode) { return creat(path, mode); }

int close(int fd)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "close"};
    if (!(o.path = of_fd(fd, buffer)))
        return (int)syscall(SYS_close, fd);
    begin(&o, READS);
    /* Whatever it returns, a descriptor is closed. */
    int result = (int)syscall(SYS_close, fd);
    if (o.what == ERROR || o.what == LATE)
        result = -1, errno = o.error;
    record(&o, result, result ? errno : 0);
    return result;
}

/* ---- reading and writing ---- */

ssize_t read(int fd, void *to, size_t n)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "read"};
    if (!(o.path = of_fd(fd, buffer)))
        return syscall(SYS_read, fd, to, n);
    return DO(o, READS, syscall(SYS_read, fd, to, n), syscall(SYS_read, fd, to, half_of(n)));
}

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "read", .offset = at};
    if (!(o.path = of_fd(fd, buffer)))
        return syscall(SYS_pread64, fd, to, n, at);
    return DO(o, READS, syscall(SYS_pread64, fd, to, n, at), syscall(SYS_pread64, fd, to, half_of(n), at));
}
ssize_t pread64(int fd, void *to, size_t n, off64_t at) { return pread(fd, to, n, at); }

ssize_t readv(int fd, const struct iovec *parts, int n)
{
    char buffer[PATH_MAX];
    if (of_fd(fd, buffer) && n > 0)
        return read(fd, parts[0].iov_base, parts[0].iov_len);
    return syscall(SYS_readv, fd, parts, n);
}

/* A write at the file's own place, whose offset is known when it is done. */
static long write_here(struct operation *o, int fd, const void *from, size_t n)
{
    long result = syscall(SYS_write, fd, from, n);
    int before = errno;
    if (result >= 0)
        o->offset = syscall(SYS_lseek, fd, 0, SEEK_CUR) - result;
    errno = before;
    return result;
}

ssize_t write(int fd, const void *from, size_t n)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "write", .data = from};
    if (!(o.path = of_fd(fd, buffer)))
        return syscall(SYS_write, fd, from, n);
    return DO(o, CHANGES | TAKES_ROOM, write_here(&o, fd, from, n), write_here(&o, fd, from, half_of(n)));
}

ssize_t pwrite(int fd, const void *from, size_t n, off_t at)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "write", .data = from, .offset = at};
    if (!(o.path = of_fd(fd, buffer)))
        return syscall(SYS_pwrite64, fd, from, n, at);
    return DO(o, CHANGES | TAKES_ROOM, syscall(SYS_pwrite64, fd, from, n, at),
              syscall(SYS_pwrite64, fd, from, half_of(n), at));
}
ssize_t pwrite64(int fd, const void *from, size_t n, off64_t at) { return pwrite(fd, from, n, at); }

/* Writes of several parts become writes of the first that is not empty, which is a legal answer. */
ssize_t writev(int fd, const struct iovec *parts, int n)
{
    char buffer[PATH_MAX];
    if (of_fd(fd, buffer))
        for (int i = 0; i < n; i++)
            if (parts[i].iov_len)
                return write(fd, parts[i].iov_base, parts[i].iov_len);
    return syscall(SYS_writev, fd, parts, n);
}

/* Where the data is to be seen, copies in the kernel are not to be had: the program reads and writes instead. */
ssize_t copy_file_range(int from, off64_t *from_at, int to, off64_t *to_at, size_t n, unsigned flags)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "copy"};
    if (!(o.path = of_fd(to, buffer)))
        return syscall(SYS_copy_file_range, from, from_at, to, to_at, n, flags);
    if (with_data)
        return errno = ENOSYS, -1;
    return DO(o, CHANGES | TAKES_ROOM, syscall(SYS_copy_file_range, from, from_at, to, to_at, n, flags),
              syscall(SYS_copy_file_range, from, from_at, to, to_at, half_of(n < 4096 ? n : 4096), flags));
}

ssize_t sendfile64(int to, int from, off64_t *at, size_t n)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "copy"};
    if (!(o.path = of_fd(to, buffer)))
        return syscall(SYS_sendfile, to, from, at, n);
    if (with_data)
        return errno = ENOSYS, -1;
    return DO(o, CHANGES | TAKES_ROOM, syscall(SYS_sendfile, to, from, at, n),
              syscall(SYS_sendfile, to, from, at, half_of(n < 4096 ? n : 4096)));
}
ssize_t sendfile(int to, int from, off_t *at, size_t n) { return sendfile64(to, from, at, n); }

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "mmap"};
    if (!(o.path = of_fd(fd, buffer)))
        return (void *)syscall(SYS_mmap, at, n, protection, flags, fd, offset);
    return (void *)WHOLE(o, READS, syscall(SYS_mmap, at, n, protection, flags, fd, offset));
}
void *mmap64(void *at, size_t n, int protection, int flags, int fd, off64_t offset)
{
    return mmap(at, n, protection, flags, fd, offset);
}

int ftruncate(int fd, off_t n)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "truncate", .offset = n};
    if (!(o.path = of_fd(fd, buffer)))
        return (int)syscall(SYS_ftruncate, fd, n);
    return (int)WHOLE(o, CHANGES, syscall(SYS_ftruncate, fd, n));
}
int ftruncate64(int fd, off64_t n) { return ftruncate(fd, n); }

int fallocate(int fd, int mode, off_t offset, off_t n)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "allocate", .offset = offset + n};
    if (!(o.path = of_fd(fd, buffer)))
        return (int)syscall(SYS_fallocate, fd, mode, offset, n);
    return (int)WHOLE(o, CHANGES | TAKES_ROOM, syscall(SYS_fallocate, fd, mode, offset, n));
}
int fallocate64(int fd, int mode, off64_t offset, off64_t n) { return fallocate(fd, mode, offset, n); }

static int do_sync(int fd, const char *name, long number)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = name};
    if (!(o.path = of_fd(fd, buffer)))
        return (int)syscall(number, fd);
    return (int)WHOLE(o, READS, 0);
}
int fsync(int fd) { return do_sync(fd, "fsync", SYS_fsync); }
/* What differs between the two are times, which are not read here. */
int fdatasync(int fd) { return do_sync(fd, "fsync", SYS_fdatasync); }

int flock(int fd, int how)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "lock", .flags = how};
    if (!(o.path = of_fd(fd, buffer)))
        return (int)syscall(SYS_flock, fd, how);
    return (int)WHOLE(o, READS, syscall(SYS_flock, fd, how));
}

int fcntl(int fd, int command, ...)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "lock", .flags = command};
    va_list list;
    va_start(list, command);
    unsigned long argument = va_arg(list, unsigned long);
    va_end(list);
    int locks = command == F_SETLK || command == F_SETLKW || command == F_OFD_SETLK || command == F_OFD_SETLKW;
    if (!locks || !(o.path = of_fd(fd, buffer)))
        return (int)syscall(SYS_fcntl, fd, command, argument);
    return (int)WHOLE(o, READS, syscall(SYS_fcntl, fd, command, argument));
}

/* ---- folders and names ---- */

static int do_rename(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    char buffers[2][PATH_MAX];
    struct operation o = {.name = "rename", .flags = flags};
    o.path = of_path(from_dir, from, buffers[0]);
    o.other = of_path(to_dir, to, buffers[1]);
    if (!o.path || !o.other)
        return (int)syscall(SYS_renameat2, from_dir, from, to_dir, to, flags);
    return (int)WHOLE(o, CHANGES, syscall(SYS_renameat2, from_dir, from, to_dir, to, flags));
}
int rename(const char *from, const char *to) { return do_rename(AT_FDCWD, from, AT_FDCWD, to, 0); }
int renameat(int from_dir, const char *from, int to_dir, const char *to) { return do_rename(from_dir, from, to_dir, to, 0); }
int renameat2(int from_dir, const char *from, int to_dir, const char *to, unsigned flags)
{
    return do_rename(from_dir, from, to_dir, to, flags);
}

int linkat(int from_dir, const char *from, int to_dir, const char *to, int flags)
{
    char buffers[2][PATH_MAX];
    struct operation o = {.name = "link", .flags = flags};
    o.path = of_path(from_dir, from, buffers[0]);
    o.other = of_path(to_dir, to, buffers[1]);
    if (!o.path || !o.other)
        return (int)syscall(SYS_linkat, from_dir, from, to_dir, to, flags);
    return (int)WHOLE(o, CHANGES | TAKES_ROOM, syscall(SYS_linkat, from_dir, from, to_dir, to, flags));
}
int link(const char *from, const char *to) { return linkat(AT_FDCWD, from, AT_FDCWD, to, 0); }

/* One name: to be made or removed. */
#define NAMED(operation_, dirfd, path_, effect, ...)         \
    char buffer[PATH_MAX];                                   \
    struct operation o = {.name = operation_};               \
    if (!(o.path = of_path(dirfd, path_, buffer)))           \
        return (int)syscall(__VA_ARGS__);                    \
    return (int)WHOLE(o, effect, syscall(__VA_ARGS__));

int unlinkat(int dirfd, const char *path, int flags)
{
    NAMED(flags & AT_REMOVEDIR ? "rmdir" : "unlink", dirfd, path, CHANGES, SYS_unlinkat, dirfd, path, flags)
}
int unlink(const char *path) { return unlinkat(AT_FDCWD, path, 0); }
int rmdir(const char *path) { return unlinkat(AT_FDCWD, path, AT_REMOVEDIR); }
int mkdirat(int dirfd, const char *path, mode_t mode)
{
    NAMED("mkdir", dirfd, path, CHANGES | TAKES_ROOM, SYS_mkdirat, dirfd, path, mode)
}
int mkdir(const char *path, mode_t mode) { return mkdirat(AT_FDCWD, path, mode); }
int symlink(const char *target, const char *path)
{
    NAMED("symlink", AT_FDCWD, path, CHANGES | TAKES_ROOM, SYS_symlinkat, target, AT_FDCWD, path)
}
int statx(int dirfd, const char *restrict path, int flags, unsigned mask, struct statx *restrict to)
{
    NAMED("stat", dirfd, path, READS, SYS_statx, dirfd, path, flags, mask, to)
}

/* Functions of the C library that are more than a call of the kernel. */
#define NEXT(function) ((__typeof__(&function))dlsym(RTLD_NEXT, #function))

DIR *opendir(const char *path)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "opendir"};
    if (!(o.path = of_path(AT_FDCWD, path, buffer)))
        return NEXT(opendir)(path);
    DIR *found = NULL;
    /* As numbers: 0 for done, -1 for not. */
    WHOLE(o, READS, (found = NEXT(opendir)(path)) ? 0L : -1L);
    return o.what == ERROR || o.what == LATE ? NULL : found;
}

struct dirent64 *readdir64(DIR *from)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "readdir"};
    if (!(o.path = of_fd(dirfd(from), buffer)))
        return NEXT(readdir64)(from);
    struct dirent64 *found = NULL;
    WHOLE(o, READS, (found = NEXT(readdir64)(from), 0L));
    return o.what == ERROR || o.what == LATE ? NULL : found;
}

char *realpath(const char *restrict path, char *restrict to)
{
    char buffer[PATH_MAX];
    struct operation o = {.name = "realpath"};
    if (!(o.path = of_path(AT_FDCWD, path, buffer)))
        return NEXT(realpath)(path, to);
    char *found = NULL;
    WHOLE(o, READS, (found = NEXT(realpath)(path, to)) ? 0L : -1L);
    return o.what == ERROR || o.what == LATE ? NULL : found;
}

/* ---- memory ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

/* Whether this allocation is to fail. */
static int refused(size_t n)
{
    if (wanted_allocation < 0 || n < wanted_bytes)
        return 0;
    long number = atomic_fetch_add(&allocations, 1) + 1;
    struct operation o = {.name = "allocation", .offset = (long)n, .path = ".", .hit = number == wanted_allocation};
    record(&o, o.hit ? -1 : 0, o.hit ? ENOMEM : 0);
    return o.hit;
}

#define OR_NONE(n, call) (refused(n) ? (errno = ENOMEM, NULL) : (call))
void *malloc(size_t n) { return OR_NONE(n, __libc_malloc(n)); }
void *calloc(size_t count, size_t n) { return OR_NONE(count * n, __libc_calloc(count, n)); }
void *realloc(void *old, size_t n) { return OR_NONE(n, __libc_realloc(old, n)); }
void *aligned_alloc(size_t alignment, size_t n) { return OR_NONE(n, __libc_memalign(alignment, n)); }
int posix_memalign(void **to, size_t alignment, size_t n)
{
    void *made = OR_NONE(n, __libc_memalign(alignment, n));
    if (made)
        *to = made;
    return made ? 0 : ENOMEM;
}
