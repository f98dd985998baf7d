/* A preload that makes writes and new files fail on request. FAIL_FILE names a file with "ERRNO PART": while it exists, a write to
 * a file whose path contains PART fails with this error, and so does the creation of such a file. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int failure(const char *path) {
    char part[256];
    int error = 0;
    const char *control = getenv("FAIL_FILE");
    FILE *file = control ? fopen(control, "re") : NULL;
    if (!file)
        return 0;
    if (fscanf(file, "%d %255s", &error, part) != 2 || !strstr(path, part))
        error = 0;
    fclose(file);
    return error;
}

ssize_t write(int fd, const void *bytes, size_t length) {
    static ssize_t (*real)(int, const void *, size_t);
    char link[64], path[4096];
    int before = errno;
    if (!real)
        real = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t found = readlink(link, path, sizeof path - 1);
    if (found > 0 && path[0] == '/') {
        path[found] = 0;
        int error = failure(path);
        if (error) {
            errno = error;
            return -1;
        }
    }
    errno = before;
    return real(fd, bytes, length);
}

int open64(const char *path, int flags, ...) {
    static int (*real)(const char *, int, ...);
    va_list arguments;
    va_start(arguments, flags);
    int mode = va_arg(arguments, int);
    va_end(arguments);
    if (!real)
        real = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open64");
    int error = flags & O_CREAT ? failure(path) : 0;
    if (error) {
        errno = error;
        return -1;
    }
    return real(path, flags, mode);
}
