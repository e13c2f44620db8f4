/* The programs of a build tree find the tree's own plugins, as `meson devenv` would have them. It is
 * the same program that gets installed, so it holds no path: beside the folder in which it lies the
 * tree has a file that is never installed, with the plugins' folders.
 *
 * Linked into programs, not into the library; runs before main. Nothing happens where the user gives
 * HEED_PLUGIN_PATH, be it empty, in a set-uid process, or where the file belongs to somebody else
 * than the program does: who can write beside a program's folder may not name what it loads. */
#define _GNU_SOURCE

#if defined(__linux__)
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKER "heed_build_tree.txt" /* the top meson.build writes it */

/* Replaces the last two parts of a path. */
static int beside_folder(char *path, size_t room)
{
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(path, '/');
        if (!slash)
            return 0;
        *slash = 0;
    }
    const size_t length = strlen(path);
    if (length + sizeof "/" MARKER > room)
        return 0;
    memcpy(path + length, "/" MARKER, sizeof "/" MARKER);
    return 1;
}

/* The first line of a file that is the program's owner's; its length. */
static size_t read_line(const char *path, uid_t owner, char *line, size_t room)
{
    struct stat file;
    ssize_t n = 0;
    const int fd = open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC);
    if (fd < 0)
        return 0;
    if (fstat(fd, &file) == 0 && S_ISREG(file.st_mode) && file.st_uid == owner)
        n = read(fd, line, room - 1);
    close(fd);
    line[n > 0 ? n : 0] = 0;
    return strlen(strtok(line, "\n") ? line : "");
}

__attribute__((constructor)) static void find_build_tree(void)
{
    char path[PATH_MAX], folders[PATH_MAX];
    struct stat program;
    if (getauxval(AT_SECURE) || getenv("HEED_PLUGIN_PATH") || stat("/proc/self/exe", &program) != 0)
        return;
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return;
    path[n] = 0;
    if (beside_folder(path, sizeof path) &&
        read_line(path, program.st_uid, folders, sizeof folders) > 0)
        setenv("HEED_PLUGIN_PATH", folders, 0);
}
#else
typedef int heed_no_build_tree; /* nothing tells where the program lies */
#endif
