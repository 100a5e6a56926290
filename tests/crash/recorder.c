/* Records what a process writes below one folder, in order: writes, syncs, truncations, renames, removals.
 *
 * Preloaded (LD_PRELOAD). SIDELIGHT_CRASH_FOLDER is the folder, SIDELIGHT_CRASH_RECORD the file that gets the record,
 * SIDELIGHT_CRASH_FAIL_SYNC the number of the sync that fails with EIO (from 1; 0: none). A record is five little-endian
 * int64 (what, file, offset, length, other file) and then the bytes; a file's name is a record of its own. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

enum { NAME = 1, WRITE, SYNC, TRUNCATE, REMOVE, RENAME };
#define FILES 512
#define DESCRIPTORS 4096

static char names[FILES][PATH_MAX];
static int n_names;
static int file_of[DESCRIPTORS];
static int record = -1;
static long syncs, failing;
static char folder[PATH_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define REAL(type, name, ...) static type (*real)(__VA_ARGS__); if (!real) real = dlsym(RTLD_NEXT, name)

static ssize_t put(const void *bytes, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    return real(record, bytes, n);
}

static void note(int64_t what, int64_t file, int64_t offset, int64_t length, int64_t other, const void *bytes) {
    int64_t head[5] = {what, file, offset, length, other};
    put(head, sizeof head);
    if (bytes && length > 0) put(bytes, (size_t)length);
}

__attribute__((constructor)) static void begin(void) {
    const char *where = getenv("SIDELIGHT_CRASH_FOLDER"), *out = getenv("SIDELIGHT_CRASH_RECORD");
    const char *fail = getenv("SIDELIGHT_CRASH_FAIL_SYNC");
    if (!where || !out) return;
    strncpy(folder, where, sizeof folder - 1);
    failing = fail ? atol(fail) : 0;
    for (int i = 0; i < DESCRIPTORS; i++) file_of[i] = -1;
    REAL(int, "open64", const char *, int, ...);
    record = real(out, O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
}

static int known(const char *path) {
    size_t n = strlen(folder);
    const char *end = path + strlen(path);
    if (record < 0 || !n || strncmp(path, folder, n) || (end - path > 4 && !strcmp(end - 4, "-shm"))) return -1;
    for (int i = 0; i < n_names; i++)
        if (!strcmp(names[i], path)) return i;
    if (n_names == FILES) return -1;
    strncpy(names[n_names], path, PATH_MAX - 1);
    note(NAME, n_names, 0, (int64_t)strlen(path), 0, path);
    return n_names++;
}

static int opened(int fd, const char *path, int flags) {
    if (fd < 0 || fd >= DESCRIPTORS || !path) return fd;
    pthread_mutex_lock(&lock);
    file_of[fd] = known(path);
    if (file_of[fd] >= 0 && (flags & O_TRUNC)) note(TRUNCATE, file_of[fd], 0, 0, 0, NULL);
    pthread_mutex_unlock(&lock);
    return fd;
}

#define OPEN(symbol, text)                                                                  \
    int symbol(const char *path, int flags, ...) {                                          \
        REAL(int, text, const char *, int, ...);                                            \
        va_list rest;                                                                       \
        va_start(rest, flags);                                                              \
        int mode = va_arg(rest, int);                                                       \
        va_end(rest);                                                                       \
        return opened(real(path, flags, mode), path, flags);                                \
    }
OPEN(open, "open")
OPEN(open64, "open64")

#define OPENAT(symbol, text)                                                                \
    int symbol(int at, const char *path, int flags, ...) {                                  \
        REAL(int, text, int, const char *, int, ...);                                       \
        va_list rest;                                                                       \
        va_start(rest, flags);                                                              \
        int mode = va_arg(rest, int);                                                       \
        va_end(rest);                                                                       \
        return opened(real(at, path, flags, mode), path, flags);                            \
    }
OPENAT(openat, "openat")
OPENAT(openat64, "openat64")

static int watched(int fd) { return fd >= 0 && fd < DESCRIPTORS && record >= 0 ? file_of[fd] : -1; }

#define PWRITE(symbol, text)                                                                \
    ssize_t symbol(int fd, const void *bytes, size_t n, off_t offset) {                     \
        REAL(ssize_t, text, int, const void *, size_t, off_t);                              \
        ssize_t done = real(fd, bytes, n, offset);                                          \
        if (done > 0 && watched(fd) >= 0) {                                                 \
            pthread_mutex_lock(&lock);                                                      \
            note(WRITE, file_of[fd], offset, done, 0, bytes);                               \
            pthread_mutex_unlock(&lock);                                                    \
        }                                                                                   \
        return done;                                                                        \
    }
PWRITE(pwrite, "pwrite")
PWRITE(pwrite64, "pwrite64")

ssize_t write(int fd, const void *bytes, size_t n) {
    REAL(ssize_t, "write", int, const void *, size_t);
    off_t offset = watched(fd) >= 0 ? lseek(fd, 0, SEEK_CUR) : 0;
    ssize_t done = real(fd, bytes, n);
    if (done > 0 && watched(fd) >= 0) {
        pthread_mutex_lock(&lock);
        note(WRITE, file_of[fd], offset, done, 0, bytes);
        pthread_mutex_unlock(&lock);
    }
    return done;
}

static int sync_of(int fd, int (*real)(int)) {
    if (watched(fd) < 0) return real(fd);
    pthread_mutex_lock(&lock);
    int fails = ++syncs == failing;
    note(SYNC, file_of[fd], 0, 0, fails, NULL);
    pthread_mutex_unlock(&lock);
    if (fails) {
        errno = EIO;
        return -1;
    }
    return real(fd);
}

int fsync(int fd) {
    REAL(int, "fsync", int);
    return sync_of(fd, real);
}

int fdatasync(int fd) {
    REAL(int, "fdatasync", int);
    return sync_of(fd, real);
}

#define CUT(symbol, text)                                                                   \
    int symbol(int fd, off_t length) {                                                      \
        REAL(int, text, int, off_t);                                                        \
        int done = real(fd, length);                                                        \
        if (!done && watched(fd) >= 0) {                                                    \
            pthread_mutex_lock(&lock);                                                      \
            note(TRUNCATE, file_of[fd], length, 0, 0, NULL);                                \
            pthread_mutex_unlock(&lock);                                                    \
        }                                                                                   \
        return done;                                                                        \
    }
CUT(ftruncate, "ftruncate")
CUT(ftruncate64, "ftruncate64")

int unlink(const char *path) {
    REAL(int, "unlink", const char *);
    int done = real(path);
    pthread_mutex_lock(&lock);
    int file = done ? -1 : known(path);
    if (file >= 0) note(REMOVE, file, 0, 0, 0, NULL);
    pthread_mutex_unlock(&lock);
    return done;
}

int rename(const char *from, const char *to) {
    REAL(int, "rename", const char *, const char *);
    int done = real(from, to);
    pthread_mutex_lock(&lock);
    int one = done ? -1 : known(from), other = done ? -1 : known(to);
    if (one >= 0 && other >= 0) note(RENAME, one, 0, 0, other, NULL);
    pthread_mutex_unlock(&lock);
    return done;
}

int close(int fd) {
    REAL(int, "close", int);
    if (fd >= 0 && fd < DESCRIPTORS) file_of[fd] = -1;
    return real(fd);
}
