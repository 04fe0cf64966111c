/* Counts what a process does to the files under one folder, and ends or fails it at a chosen call.

   Preloaded (LD_PRELOAD) into the fork server; a child calls torture_arm before it runs a command. Counted are
   the calls that change a disk: open for writing, write, truncate, sync, rename, link, unlink, mkdir, rmdir.
   Reading is never counted, nor is what happens outside of the folder.

   Linux with glibc. Without _FILE_OFFSET_BITS, open and open64 are two symbols, and both are taken. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum moment { BEFORE, AFTER, HALF };
enum fate { GO, FAIL, THEN_SIGNAL, PART };
enum { HIT_SIZE = 248 }; /* server.py has the same */

static char folder[PATH_MAX];
static size_t folder_length;
static long *counted; /* in memory that the server shares, so that a killed child has told it too */
static char *hit;     /* after it: the first call that was hit */
static __thread char watched_path[PATH_MAX];
static long first, second;
static int moment, signal_number, error_number, is_lasting;

void torture_arm(const char *path, long *counter, long at, long again, int when, int signal, int error,
                 int lasting) {
    strncpy(folder, path, sizeof folder - 1);
    folder_length = strlen(folder);
    first = at, second = again;
    moment = when, signal_number = signal, error_number = error, is_lasting = lasting;
    hit = (char *)(counter + 1);
    counted = counter;
}

static int is_inside(const char *path) {
    return strncmp(path, folder, folder_length) == 0 &&
           (path[folder_length] == '/' || path[folder_length] == '\0');
}

/* Keeps the path of a call under way, as seen from the folder. */
static int keep(const char *path) {
    if (is_inside(path)) path += folder_length + (path[folder_length] == '/');
    snprintf(watched_path, sizeof watched_path, "%s", path);
    return 1;
}

static int is_watched_file(int file) {
    char link[64], path[PATH_MAX];
    if (counted == NULL) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0) return 0;
    path[length] = '\0';
    return is_inside(path) && keep(path);
}

static int is_watched_at(int directory, const char *path) {
    char here[PATH_MAX];
    if (counted == NULL || path == NULL) return 0;
    if (path[0] == '/') return is_inside(path) && keep(path);
    if (directory != AT_FDCWD) return is_watched_file(directory) && keep(path);
    return getcwd(here, sizeof here) != NULL && is_inside(here) && keep(path);
}

static int is_watched(const char *path) { return is_watched_at(AT_FDCWD, path); }

/* Counts a call and says what is to become of it. */
static enum fate reach(const char *name) {
    long number = __atomic_add_fetch(counted, 1, __ATOMIC_SEQ_CST);
    if (number == first) snprintf(hit, HIT_SIZE, "%s %.200s", name, watched_path);
    if (error_number) {
        if (number == first) return moment == HALF ? PART : FAIL;
        return number > first && first > 0 && is_lasting ? FAIL : GO;
    }
    if (number != first && number != second) return GO;
    if (moment == BEFORE) raise(signal_number);
    return moment == BEFORE ? GO : moment == HALF ? PART : THEN_SIGNAL;
}

static void leave(enum fate fate) {
    int kept = errno;
    if ((fate == THEN_SIGNAL || fate == PART) && signal_number) raise(signal_number);
    errno = kept;
}

#define REAL(name)                                                                                           \
    static __typeof__(&name) real_##name;                                                                    \
    if (real_##name == NULL) real_##name = (__typeof__(&name))dlsym(RTLD_NEXT, #name);

/* A call that is done or fails as a whole: half of it is none of it. */
#define WHOLE(type, name, parameters, arguments, watched, failed)                                            \
    type name parameters {                                                                                   \
        REAL(name)                                                                                           \
        if (!(watched)) return real_##name arguments;                                                        \
        enum fate fate = reach(#name);                                                                       \
        if (fate == FAIL || (fate == PART && error_number)) {                                                \
            errno = error_number;                                                                            \
            return failed;                                                                                   \
        }                                                                                                    \
        type result = real_##name arguments;                                                                 \
        leave(fate);                                                                                         \
        return result;                                                                                       \
    }

/* A write of `size` bytes, of which a part may reach the disk. */
#define PARTLY(name, parameters, arguments, file)                                                            \
    ssize_t name parameters {                                                                                \
        REAL(name)                                                                                           \
        if (!is_watched_file(file)) return real_##name arguments;                                            \
        enum fate fate = reach(#name);                                                                       \
        if (fate == FAIL || (fate == PART && error_number && size < 2)) {                                    \
            errno = error_number;                                                                            \
            return -1;                                                                                       \
        }                                                                                                    \
        if (fate == PART) size /= 2;                                                                         \
        ssize_t result = real_##name arguments;                                                              \
        leave(fate);                                                                                         \
        return result;                                                                                       \
    }

PARTLY(write, (int file, const void *bytes, size_t size), (file, bytes, size), file)
PARTLY(pwrite, (int file, const void *bytes, size_t size, off_t at), (file, bytes, size, at), file)
PARTLY(pwrite64, (int file, const void *bytes, size_t size, off64_t at), (file, bytes, size, at), file)
PARTLY(sendfile, (int file, int from, off_t *at, size_t size), (file, from, at, size), file)
PARTLY(sendfile64, (int file, int from, off64_t *at, size_t size), (file, from, at, size), file)
PARTLY(copy_file_range, (int from, off64_t *start, int file, off64_t *at, size_t size, unsigned flags),
       (from, start, file, at, size, flags), file)
WHOLE(ssize_t, writev, (int file, const struct iovec *parts, int count), (file, parts, count),
      is_watched_file(file), -1)
WHOLE(int, ftruncate, (int file, off_t size), (file, size), is_watched_file(file), -1)
WHOLE(int, ftruncate64, (int file, off64_t size), (file, size), is_watched_file(file), -1)
WHOLE(int, fsync, (int file), (file), is_watched_file(file), -1)
WHOLE(int, fdatasync, (int file), (file), is_watched_file(file), -1)
WHOLE(int, rename, (const char *from, const char *to), (from, to), is_watched(to), -1)
WHOLE(int, renameat, (int from_at, const char *from, int to_at, const char *to), (from_at, from, to_at, to),
      is_watched_at(to_at, to), -1)
WHOLE(int, renameat2, (int from_at, const char *from, int to_at, const char *to, unsigned flags),
      (from_at, from, to_at, to, flags), is_watched_at(to_at, to), -1)
WHOLE(int, link, (const char *from, const char *to), (from, to), is_watched(to), -1)
WHOLE(int, linkat, (int from_at, const char *from, int to_at, const char *to, int flags),
      (from_at, from, to_at, to, flags), is_watched_at(to_at, to), -1)
WHOLE(int, mkdir, (const char *path, mode_t mode), (path, mode), is_watched(path), -1)
WHOLE(int, mkdirat, (int at, const char *path, mode_t mode), (at, path, mode), is_watched_at(at, path), -1)
WHOLE(int, unlink, (const char *path), (path), is_watched(path), -1)
WHOLE(int, unlinkat, (int at, const char *path, int flags), (at, path, flags), is_watched_at(at, path), -1)
WHOLE(int, rmdir, (const char *path), (path), is_watched(path), -1)

#define IS_WRITTEN(mode) (strpbrk(mode, "wa+") != NULL)
WHOLE(FILE *, fopen, (const char *path, const char *mode), (path, mode), IS_WRITTEN(mode) && is_watched(path),
      NULL)
WHOLE(FILE *, fopen64, (const char *path, const char *mode), (path, mode),
      IS_WRITTEN(mode) && is_watched(path), NULL)

/* open and its kin have a mode only where they may create the file. */
#define OPENS(name, parameters, last, arguments, watched)                                                    \
    int name parameters {                                                                                    \
        REAL(name)                                                                                           \
        mode_t mode = 0;                                                                                     \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                 \
            va_list rest;                                                                                    \
            va_start(rest, last);                                                                            \
            mode = va_arg(rest, mode_t);                                                                     \
            va_end(rest);                                                                                    \
        }                                                                                                    \
        if ((flags & O_ACCMODE) == O_RDONLY || !(watched)) return real_##name arguments;                     \
        enum fate fate = reach(#name);                                                                       \
        if (fate == FAIL || (fate == PART && error_number)) {                                                \
            errno = error_number;                                                                            \
            return -1;                                                                                       \
        }                                                                                                    \
        int result = real_##name arguments;                                                                  \
        leave(fate);                                                                                         \
        return result;                                                                                       \
    }

OPENS(open, (const char *path, int flags, ...), flags, (path, flags, mode), is_watched(path))
OPENS(open64, (const char *path, int flags, ...), flags, (path, flags, mode), is_watched(path))
OPENS(openat, (int at, const char *path, int flags, ...), flags, (at, path, flags, mode),
      is_watched_at(at, path))
OPENS(openat64, (int at, const char *path, int flags, ...), flags, (at, path, flags, mode),
      is_watched_at(at, path))
