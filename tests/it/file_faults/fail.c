/* A library for LD_PRELOAD that makes the disk fail on request. The variable FAIL_FILE names a control file with "ERRNO PART". If
 * it exists, these calls fail with this error for a path that contains PART: creating, writing, renaming and deleting a file,
 * and binding a socket. With "ERRNO PART b" only writing bytes fails, with "m" only renaming, and with "r" only opening a file to
 * read it. With an ERRNO of -1, the calls hang until the control file changes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

static int control(const char *path, char operation) {
    char part[256], kind[2] = "w";
    int error = 0;
    const char *name = getenv("FAIL_FILE");
    FILE *file = name ? fopen(name, "re") : NULL;
    if (!file)
        return 0;
    if (fscanf(file, "%d %255s %1s", &error, part, kind) < 2 || !strstr(path, part) ||
        !(*kind == operation || (*kind == 'w' && operation != 'r')))
        error = 0;
    fclose(file);
    return error;
}

static int failure(const char *path, char operation) {
    int error;
    while ((error = control(path, operation)) == -1)
        usleep(10000);
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
        int error = failure(path, 'b');
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
    int error = failure(path, (flags & O_ACCMODE) == O_RDONLY ? 'r' : 'w');
    if (error) {
        errno = error;
        return -1;
    }
    return real(path, flags, mode);
}

/* FAILS is an expression: the error number with which the call fails, or 0. */
#define CALL(name, parameters, arguments, fails)                                                                                         \
    int name parameters {                                                                                                                \
        static int(*real) parameters;                                                                                                    \
        if (!real)                                                                                                                       \
            real = (int(*) parameters)dlsym(RTLD_NEXT, #name);                                                                           \
        int error = fails;                                                                                                               \
        if (error) {                                                                                                                     \
            errno = error;                                                                                                               \
            return -1;                                                                                                                   \
        }                                                                                                                                \
        return real arguments;                                                                                                           \
    }

static int fails_to_bind(const struct sockaddr *address) {
    return address->sa_family == AF_UNIX ? failure(((const struct sockaddr_un *)address)->sun_path, 'w') : 0;
}

static int either(const char *from, const char *to) {
    int error = failure(from, 'm');
    return error ? error : failure(to, 'm');
}

CALL(rename, (const char *from, const char *to), (from, to), either(from, to))
CALL(unlink, (const char *path), (path), failure(path, 'w'))
CALL(mkdir, (const char *path, mode_t mode), (path, mode), failure(path, 'w'))
CALL(bind, (int fd, const struct sockaddr *address, socklen_t length), (fd, address, length), fails_to_bind(address))
