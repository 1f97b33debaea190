// Faults on demand, below Python, Rust and NumPy: loaded with LD_PRELOAD, it counts the operations of this process on
// files below one folder and lets the chosen one fail.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum { COUNT, BEFORE, AFTER, FULL, READ_ONLY };
enum { MOST_FILES = 4096 };

static char prefix[4096];
static char names[MOST_FILES][512];  // of open files below the prefix
static int mode = COUNT, armed = 0, log_file = -1;
static long at = -1, operations = 0, bytes = 0;

void fault_arm(const char *folder, int wanted, long when, int log) {
    snprintf(prefix, sizeof prefix, "%s", folder);
    memset(names, 0, sizeof names);
    mode = wanted, at = when, log_file = log, operations = 0, bytes = 0, armed = 1;
}

static int inside(const char *path) { return armed && path && !strncmp(path, prefix, strlen(prefix)); }
static int open_inside(int fd) { return armed && fd >= 0 && fd < MOST_FILES && names[fd][0]; }
static const char *name_of(int fd) { return open_inside(fd) ? names[fd] : "?"; }

static const char *resolve(int folder, const char *path, char *buffer, size_t size) {
    if (path[0] == '/' || !open_inside(folder)) return path;
    snprintf(buffer, size, "%s/%s", names[folder], path);
    return buffer;
}

static void die(void) {
    kill(getpid(), SIGKILL);
    for (;;) pause();
}

// One more operation. Returns how many of its bytes may be done, or -1 with errno set where it must fail.
static long begin(const char *what, const char *path, const char *other, long size) {
    if (log_file >= 0) {
        char line[2048];
        int length = snprintf(line, sizeof line, "%s\t%s\t%s\t%ld\n", what, path, other, size);
        syscall(SYS_write, log_file, line, length);
    }
    long number = operations++;
    if (mode == BEFORE && number == at) die();
    if (mode == READ_ONLY) return errno = EROFS, -1;
    if (mode == AFTER && number == at && size > 0) return size / 2;
    if (mode == FULL && size > 0) {
        long room = at - bytes;
        if (room <= 0) return errno = ENOSPC, -1;
        size = size < room ? size : room;
    }
    if (mode == FULL && bytes >= at && strcmp(what, "unlink") && strcmp(what, "fsync") && strcmp(what, "rename"))
        return errno = ENOSPC, -1;
    bytes += size;
    return size;
}

static void end(void) {
    if (mode == AFTER && operations - 1 == at) die();
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static int opened(int fd, const char *path) {
    if (fd >= 0 && fd < MOST_FILES) snprintf(names[fd], sizeof names[fd], "%s", inside(path) ? path : "");
    return fd;
}

static int open_file(int folder, const char *given, int flags, mode_t permissions) {
    char buffer[4096];
    const char *path = resolve(folder, given, buffer, sizeof buffer);
    int writes = inside(path) && ((flags & O_ACCMODE) != O_RDONLY || flags & O_CREAT);
    struct stat found;
    char size[32] = "0";
    if (writes && !(flags & O_TRUNC) && !stat(path, &found)) snprintf(size, sizeof size, "%ld", (long)found.st_size);
    if (writes && begin("open", path, size, 0) < 0) return -1;
    int fd = (int)syscall(SYS_openat, folder, given, flags, permissions);
    if (writes) end();
    return armed ? opened(fd, path) : fd;
}

#define PERMISSIONS                                          \
    mode_t permissions = 0;                                  \
    if (flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE) { \
        va_list list;                                        \
        va_start(list, flags);                               \
        permissions = va_arg(list, mode_t);                  \
        va_end(list);                                        \
    }

int open(const char *path, int flags, ...) { PERMISSIONS return open_file(AT_FDCWD, path, flags, permissions); }
int open64(const char *path, int flags, ...) { PERMISSIONS return open_file(AT_FDCWD, path, flags, permissions); }
int openat(int folder, const char *path, int flags, ...) { PERMISSIONS return open_file(folder, path, flags, permissions); }
int openat64(int folder, const char *path, int flags, ...) { PERMISSIONS return open_file(folder, path, flags, permissions); }
int __open_2(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __open64_2(const char *path, int flags) { return open_file(AT_FDCWD, path, flags, 0); }
int __openat64_2(int folder, const char *path, int flags) { return open_file(folder, path, flags, 0); }

int close(int fd) {
    if (fd >= 0 && fd < MOST_FILES) names[fd][0] = 0;
    return (int)syscall(SYS_close, fd);
}

ssize_t write(int fd, const void *data, size_t size) {
    if (!open_inside(fd)) return syscall(SYS_write, fd, data, size);
    long allowed = begin("write", name_of(fd), "", (long)size);
    if (allowed < 0) return -1;
    ssize_t done = syscall(SYS_write, fd, data, (size_t)allowed);
    end();
    return done;
}

ssize_t writev(int fd, const struct iovec *parts, int count) {
    if (!open_inside(fd)) return syscall(SYS_writev, fd, parts, count);
    return count ? write(fd, parts[0].iov_base, parts[0].iov_len) : 0;
}

static ssize_t write_at(int fd, const void *data, size_t size, off_t offset) {
    if (!open_inside(fd)) return syscall(SYS_pwrite64, fd, data, size, offset);
    long allowed = begin("write", name_of(fd), "", (long)size);
    if (allowed < 0) return -1;
    ssize_t done = syscall(SYS_pwrite64, fd, data, (size_t)allowed, offset);
    end();
    return done;
}

ssize_t pwrite(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset); }
ssize_t pwrite64(int fd, const void *data, size_t size, off_t offset) { return write_at(fd, data, size, offset); }

static ssize_t send(int to, int from, off_t *offset, size_t size) {
    if (!open_inside(to)) return syscall(SYS_sendfile, to, from, offset, size);
    long allowed = begin("write", name_of(to), "", (long)size);
    if (allowed < 0) return -1;
    ssize_t done = syscall(SYS_sendfile, to, from, offset, (size_t)allowed);
    end();
    return done;
}

ssize_t sendfile(int to, int from, off_t *offset, size_t size) { return send(to, from, offset, size); }
ssize_t sendfile64(int to, int from, off_t *offset, size_t size) { return send(to, from, offset, size); }

#define ONE_FILE(what, call)                                     \
    if (!open_inside(fd)) return (int)call;                      \
    if (begin(what, name_of(fd), "", 0) < 0) return -1;          \
    int result = (int)call;                                      \
    end();                                                       \
    return result;

int fsync(int fd) { ONE_FILE("fsync", syscall(SYS_fsync, fd)) }
int fdatasync(int fd) { ONE_FILE("fsync", syscall(SYS_fdatasync, fd)) }
int ftruncate(int fd, off_t size) { ONE_FILE("truncate", syscall(SYS_ftruncate, fd, size)) }
int ftruncate64(int fd, off_t size) { ONE_FILE("truncate", syscall(SYS_ftruncate, fd, size)) }

#define ONE_PATH(what, folder, call)                                         \
    char buffer[4096];                                                       \
    const char *whole = resolve(folder, path, buffer, sizeof buffer);        \
    if (!inside(whole)) return (int)call;                                    \
    if (begin(what, whole, "", 0) < 0) return -1;                            \
    int result = (int)call;                                                  \
    end();                                                                   \
    return result;

int mkdir(const char *path, mode_t permissions) { ONE_PATH("mkdir", AT_FDCWD, syscall(SYS_mkdir, path, permissions)) }
int unlink(const char *path) { ONE_PATH("unlink", AT_FDCWD, syscall(SYS_unlink, path)) }
int rmdir(const char *path) { ONE_PATH("unlink", AT_FDCWD, syscall(SYS_rmdir, path)) }
int truncate(const char *path, off_t size) { ONE_PATH("truncate", AT_FDCWD, syscall(SYS_truncate, path, size)) }
int truncate64(const char *path, off_t size) { ONE_PATH("truncate", AT_FDCWD, syscall(SYS_truncate, path, size)) }
int unlinkat(int folder, const char *path, int flags) { ONE_PATH("unlink", folder, syscall(SYS_unlinkat, folder, path, flags)) }

int rename(const char *from, const char *to) {
    if (!inside(from) && !inside(to)) return (int)syscall(SYS_rename, from, to);
    if (begin("rename", from, to, 0) < 0) return -1;
    int result = (int)syscall(SYS_rename, from, to);
    end();
    return result;
}
