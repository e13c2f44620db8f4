/* Lets the programs of a build tree find the plugins of the tree, as `meson devenv` would. The same
 * program gets installed, so it contains no path: the build tree has a file, which is never
 * installed, next to the program's folder, and that file lists the folders of the plugins.
 *
 * It is linked into programs, not into the library, and runs before main. It does nothing if the
 * user sets HEED_PLUGIN_PATH, even to nothing, in a set-uid process, or if the file and the program
 * have different owners: whoever can write next to a program's folder must not be able to choose
 * what it loads. */
#define _GNU_SOURCE

#if defined(__linux__)
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/stat.h>
#include <unistd.h>

#define MARKER "heed_build_tree.txt" /* written by the meson.build of the root */

/* Replaces the last two parts of a path by MARKER. */
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

/* Reads the first line of a file, if `owner` owns it. Returns its length. */
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
typedef int heed_no_build_tree; /* the system does not tell where the program is */
#endif
